// Times in a pickle.
#include <algorithm>

#include "base/calendar.h"
#include "base/text.h"
#include "rendezvous/wire/pickle.h"

namespace muster::wire {

namespace {

using Kind = PickleKind;

struct Constructor {
  Kind makes;
  std::array<Kind, 3> takes;
  size_t least;  ///< So many arguments,
  size_t most;   ///< to so many.
  std::string_view described;
};

// By class, from kDateTime on.
constexpr Constructor kConstructors[] = {
    {Kind::kDateTime, {Kind::kBytes, Kind::kTimeZone}, 1, 2, "bytes and perhaps a timezone"},
    {Kind::kTimeZone, {Kind::kTimeDelta, Kind::kText}, 1, 2, "a timedelta and perhaps a name"},
    {Kind::kTimeDelta, {Kind::kInt, Kind::kInt, Kind::kInt}, 3, 3, "three integers of 64 bits"},
};

constexpr int64_t kDayUs = 86'400'000'000;

template <typename... Pieces>
Error Wrong(const PickleValue& made, const Pieces&... pieces) {
  return {Code::kProtocol, Concat(NameOf(made.of).name, pieces...)};
}

Result<int64_t> TimeDeltaOf(const PickleValue& made, int64_t days, int64_t seconds, int64_t us) {
  constexpr int64_t kDaysMost = 999'999'999;
  if (days < -kDaysMost || days > kDaysMost || seconds < 0 || seconds >= 86'400 || us < 0 ||
      us >= 1'000'000) {
    return Wrong(made, " of ", days, " days, ", seconds, " s, ", us, " us");
  }
  // Only differences below a day are used in computations; larger ones must not overflow, and
  // become two days, which is refused as too large.
  return std::clamp<int64_t>(days, -2, 2) * kDayUs + seconds * 1'000'000 + us;
}

}  // namespace

Status MakeTime(const PickleTree& tree, PickleValue& made) {
  const auto which = static_cast<size_t>(made.of) - static_cast<size_t>(PickleClass::kDateTime);
  const Constructor& constructor = kConstructors[which];
  std::array<PickleId, 3> given{};
  size_t count = 0;
  bool fit = true;
  for (const PickleItem& item : tree.ItemsOf(made.first)) {
    const PickleValue& argument = tree[item.value];
    fit = count < constructor.most && argument.kind == constructor.takes[count] && argument.fits;
    if (!fit) break;
    given[count++] = item.value;
  }
  if (!fit || count < constructor.least)
    return Wrong(made, " with other arguments than ", constructor.described);
  const auto number = [&](size_t index) { return tree[given[index]].number; };
  made.kind = constructor.makes;
  if (made.kind == Kind::kTimeDelta) {
    MUSTER_TRY(made.number, TimeDeltaOf(made, number(0), number(1), number(2)));
  } else if (made.kind == Kind::kTimeZone) {
    made.number = number(0);
    if (made.number <= -kDayUs || made.number >= kDayUs)
      return Wrong(made, " that is a day or more from UTC");
  } else {
    MUSTER_TRY(const WallTime local, ReadDatetime(tree.Content(given[0])));
    made.fits = count == 2;
    made.number = static_cast<int64_t>(local) - (made.fits ? number(1) : 0);
  }
  return Ok();
}

}  // namespace muster::wire
