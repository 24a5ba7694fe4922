#include "launch/options/arguments.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"

namespace muster {

namespace {

using Kind = ArgumentSpec::Kind;

bool TakesValue(const ArgumentSpec& spec) {
  return spec.kind != Kind::kFlag && spec.kind != Kind::kHelp;
}

/// "-t/--tee".
std::string NameOf(const ArgumentSpec& spec) {
  return spec.letter == 0 ? Concat("--", spec.name) : Concat('-', spec.letter, "/--", spec.name);
}

/// "-1", "-.5", "-1.5": values, where an option could stand.
bool IsNegativeNumber(std::string_view word) {
  if (!word.starts_with('-') || !IsDigit(word.back())) return false;
  word.remove_prefix(1);
  return std::count(word.begin(), word.end(), '.') <= 1 &&
         std::all_of(word.begin(), word.end(), [](char c) { return IsDigit(c) || c == '.'; });
}

Status CheckChoice(const ArgumentSpec& spec, std::string_view text) {
  if (spec.choices.empty()) return Ok();
  const std::vector<std::string_view> choices = Split(spec.choices, ',');
  if (std::ranges::find(choices, text) != choices.end()) return Ok();
  return MakeError(Code::kInvalid, NameOf(spec), " takes one of ",
                   ListOf({choices.begin(), choices.end()}, choices.size()), ", not '",
                   Printable(text), "'");
}

/// What one word before the script is: an option, or else plain.
struct Word {
  const ArgumentSpec* spec = nullptr;
  bool by_letter = false;
  bool equals = false;                            // "-t=3", and not "-t3".
  std::optional<std::string_view> attached = {};  // "3", or more letters.
  std::vector<std::string> candidates = {};       // Several: an ambiguous abbreviation.
  bool is_unknown = false;                        // It looks like an option, and there is none.

  bool IsPlain() const { return spec == nullptr && !is_unknown; }
};

class Reader {
 public:
  Reader(std::span<const ArgumentSpec> specs, std::span<const std::string> words) : words_(words) {
    for (const ArgumentSpec& spec : specs) {
      const std::string dashed = Concat("--", spec.name);
      std::string underscored = dashed;
      std::replace(underscored.begin() + 2, underscored.end(), '-', '_');
      if (spec.letter != 0) spellings_.push_back({Concat('-', spec.letter), &spec});
      spellings_.push_back({dashed, &spec});
      if (underscored != dashed) spellings_.push_back({underscored, &spec});
    }
  }

  Result<CommandLine> Read() {
    while (at_ < words_.size() && !line_.script) {
      const std::string& text = words_[at_];
      const Word word = Classify(text);
      if (word.candidates.size() > 1) {
        return MakeError(Code::kInvalid, "'", Printable(text), "' may be any of ",
                         ListOf(word.candidates, 8), ": write more of it");
      }
      if (word.IsPlain()) {
        TakeScript();
        continue;
      }
      ++at_;
      // Reported at the end, so that --help after it still works.
      if (word.is_unknown && !unknown_) unknown_ = text;
      if (!word.is_unknown) MUSTER_CHECK_OK(TakeOption(word));
      if (line_.help) return std::move(line_);
    }
    if (!unknown_) return std::move(line_);
    std::vector<std::string> names;
    for (const Spelling& spelling : spellings_) names.push_back(spelling.text);
    const std::string meant = DidYouMean(unknown_->substr(0, unknown_->find('=')), names);
    return MakeError(Code::kInvalid, "there is no option '", Printable(*unknown_), "'",
                     meant.empty() ? "; options of the script come after the script" : meant);
  }

 private:
  struct Spelling {
    std::string text;
    const ArgumentSpec* spec;
  };

  const ArgumentSpec* Exactly(std::string_view text) const {
    const auto found = std::ranges::find(spellings_, text, &Spelling::text);
    return found == spellings_.end() ? nullptr : found->spec;
  }

  Word Classify(std::string_view word) const {
    if (word.size() < 2 || word[0] != '-' || word == "--") return {};
    Word found{.spec = Exactly(word), .by_letter = word[1] != '-'};
    if (found.spec) return found;
    const size_t equals = word.find('=');
    const std::string_view head = word.substr(0, equals);
    found.spec = Exactly(head);
    if (!found.spec && found.by_letter) {
      found.spec = Exactly(word.substr(0, 2));
      found.attached = word.substr(2);
    } else if (equals != word.npos) {
      found.equals = true;
      found.attached = word.substr(equals + 1);
    }
    for (const bool ours : {false, true}) {
      if (!found.by_letter && !found.spec) Abbreviate(head, ours, found);
    }
    // These cannot be options: a number, or several words in quotes.
    const bool is_value = IsNegativeNumber(word) || word.find(' ') != word.npos;
    found.is_unknown = !found.spec && !is_value;
    return found;
  }

  /// Adds the options that begin so.
  void Abbreviate(std::string_view text, bool ours, Word& word) const {
    for (const Spelling& spelling : spellings_) {
      if (spelling.spec->ours != ours || !spelling.text.starts_with(text)) continue;
      word.spec = spelling.spec;
      word.candidates.push_back(spelling.text);
    }
  }

  /// The options of one word, and of the next if that is the value.
  Status TakeOption(const Word& option) {
    const ArgumentSpec* spec = option.spec;
    std::optional<std::string_view> attached = option.attached;
    bool equals = option.equals;
    while (true) {
      if (TakesValue(*spec)) return attached ? TakeValue(*spec, *attached) : TakeNextAsValue(*spec);
      // "-mt3": the letters after a flag are options of their own.
      const bool more = option.by_letter && attached && !attached->empty() && !equals;
      const ArgumentSpec* next = more ? Exactly(Concat('-', attached->front())) : nullptr;
      if (attached && !next) {
        return MakeError(Code::kInvalid, NameOf(*spec), " takes no value, but '",
                         Printable(*attached), "' came with it");
      }
      line_.help = spec->kind == Kind::kHelp;
      if (line_.help) return Ok();
      line_.given.insert_or_assign(std::string(spec->name), std::string());
      if (!next) return Ok();
      spec = next;
      attached->remove_prefix(1);
      equals = attached->starts_with('=');
      if (equals) attached->remove_prefix(1);
      if (attached->empty() && !equals) attached.reset();
    }
  }

  Status TakeNextAsValue(const ArgumentSpec& spec) {
    if (at_ == words_.size()) return MakeError(Code::kInvalid, NameOf(spec), " needs a value");
    const std::string& next = words_[at_];
    if (next != "--" && Classify(next).IsPlain()) return TakeValue(spec, words_[at_++]);
    return MakeError(Code::kInvalid, NameOf(spec), " needs a value, and '", Printable(next),
                     "' looks like an option: write --", spec.name,
                     "=VALUE for one that begins with '-'");
  }

  Status TakeValue(const ArgumentSpec& spec, std::string_view text) {
    MUSTER_CHECK_OK(CheckKind(spec, NameOf(spec), text));
    MUSTER_CHECK_OK(CheckChoice(spec, text));
    line_.given.insert_or_assign(std::string(spec.name), std::string(text));
    return Ok();
  }

  void TakeScript() {
    const bool divided = words_[at_] == "--";
    if (divided) ++at_;
    if (at_ == words_.size()) return;
    line_.script = words_[at_++];
    // One "--" is the separator, on either side of the script; all others belong to the script.
    if (!divided && at_ < words_.size() && words_[at_] == "--") ++at_;
    line_.rest.assign(words_.begin() + static_cast<ptrdiff_t>(at_), words_.end());
  }

  const std::span<const std::string> words_;
  std::vector<Spelling> spellings_;
  size_t at_ = 0;
  std::optional<std::string> unknown_;
  CommandLine line_;
};

/// In lines of at most `columns`, indented by `indent` blanks; those of the first line exist
/// already.
void AppendWrapped(std::string& out, const std::vector<std::string_view>& words, size_t indent,
                   size_t columns) {
  size_t column = indent;
  for (const std::string_view word : words) {
    if (column > indent && column + 1 + word.size() > columns) {
      out += Concat('\n', std::string(indent, ' '));
      column = indent;
    }
    if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
}

/// How many letters must be inserted, removed or changed to get one from the other.
size_t Distance(std::string_view one, std::string_view other) {
  std::vector<size_t> row(other.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= one.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t changed = corner + (one[i - 1] == other[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

constexpr size_t kWordBytesMax = 64;  // more is no typing error

std::string Plain(std::string_view word) {
  return LowerCase(word.substr(std::min(word.find_first_not_of('-'), word.size())));
}

}  // namespace

std::string DidYouMean(std::string_view word, std::span<const std::string> names) {
  if (word.size() > kWordBytesMax) return "";
  const std::string plain = Plain(word);
  const std::string* nearest = nullptr;
  size_t least = plain.size() / 2 + 1;
  for (const std::string& name : names) {
    const std::string other = Plain(name);
    const size_t distance = Distance(plain, other);
    if (other.size() < 2 || distance >= least) continue;  // a letter is like many words
    least = distance;
    nearest = &name;
  }
  return nearest == nullptr ? "" : Concat("; did you mean '", *nearest, "'?");
}

Result<CommandLine> ReadCommandLine(std::span<const ArgumentSpec> specs,
                                    std::span<const std::string> words) {
  return Reader(specs, words).Read();
}

std::string VariableOf(const ArgumentSpec& spec) {
  if (spec.ours || !spec.has_variable || spec.kind == Kind::kHelp) return "";
  std::string name = Concat("PET_", spec.name);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

Status CheckKind(const ArgumentSpec& spec, std::string_view source, std::string_view text) {
  const bool whole = spec.kind == Kind::kWhole;
  const bool right = whole                          ? ParseWholeNumber(text).has_value()
                     : spec.kind == Kind::kFraction ? ParseFraction(text).has_value()
                                                    : true;
  if (right) return Ok();
  return MakeError(Code::kInvalid, source, " takes a ", whole ? "whole number" : "number",
                   ", not '", Printable(text), "'");
}

std::optional<double> ParseFraction(std::string_view text) {
  std::string_view rest = Trim(text);
  if (rest.starts_with('+')) {
    rest.remove_prefix(1);
    if (rest.starts_with('-')) return std::nullopt;
  }
  std::string plain;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '(') return std::nullopt;  // from_chars knows "nan(payload)".
    const bool between =
        i > 0 && i + 1 < rest.size() && IsDigit(rest[i - 1]) && IsDigit(rest[i + 1]);
    if (rest[i] != '_' || !between) plain += rest[i];
  }
  return ParseAll<double>(plain);
}

std::string HelpOn(std::span<const ArgumentSpec> specs, size_t columns) {
  constexpr size_t kIndent = 30;
  std::string out;
  for (const ArgumentSpec& spec : specs) {
    if (!spec.group.empty()) out += Concat(out.empty() ? "" : "\n", spec.group, ":\n");
    std::string left = spec.letter == 0 ? Concat("  --", spec.name)
                                        : Concat("  -", spec.letter, ", --", spec.name);
    if (TakesValue(spec)) left += Concat(' ', spec.placeholder);
    out += left;
    size_t column = left.size();
    if (column + 2 > kIndent) {
      out += '\n';
      column = 0;
    }
    out += std::string(kIndent - column, ' ');

    std::string facts;
    const auto add = [&](std::string_view fact) {
      facts += Concat(facts.empty() ? "" : "; ", fact);
    };
    if (!spec.initial.empty()) add(Concat("default: ", spec.initial));
    if (const std::string variable = VariableOf(spec); !variable.empty()) add(variable);
    if (spec.ours) add("not in torchrun");
    std::vector<std::string_view> words = Split(spec.help, ' ');
    if (!facts.empty()) words.push_back(facts = Concat('[', facts, ']'));  // Kept in one line.
    AppendWrapped(out, words, kIndent, columns);
    out += '\n';
  }
  return out;
}

}  // namespace muster
