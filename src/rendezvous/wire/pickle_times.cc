#include "rendezvous/wire/pickle_times.h"

#include <algorithm>

#include "base/calendar.h"
#include "base/text.h"

namespace muster::wire {

namespace {

using Kind = PickleKind;

template <typename... Pieces>
Error Wrong(const Pieces&... pieces) {
  return {Code::kProtocol, Concat(pieces...)};
}

constexpr int64_t kDayUs = 86'400'000'000;

Status MakeTimeDelta(const PickleTree& tree, std::span<const PickleItem> arguments,
                     PickleValue& made) {
  int64_t numbers[3] = {};
  if (arguments.size() != 3) return Wrong("timedelta with ", arguments.size(), " arguments");
  for (size_t i = 0; i < 3; ++i) {
    const PickleValue& argument = tree[arguments[i].value];
    if (argument.kind != Kind::kInt || !argument.fits) {
      return Wrong("timedelta of ", Describe(argument.kind),
                   argument.fits ? "" : " beyond 64 bits");
    }
    numbers[i] = argument.number;
  }
  const auto [days, seconds, us] = numbers;
  constexpr int64_t kDaysMost = 999'999'999;
  if (days < -kDaysMost || days > kDaysMost || seconds < 0 || seconds >= 86'400 || us < 0 ||
      us >= 1'000'000) {
    return Wrong("timedelta of ", days, " days, ", seconds, " s, ", us, " us");
  }
  made.kind = Kind::kTimeDelta;
  // Only differences below a day are computed with; larger ones must not overflow, and two days
  // show that they are too large.
  made.number = std::clamp<int64_t>(days, -2, 2) * kDayUs + seconds * 1'000'000 + us;
  return Ok();
}

Status MakeTimeZone(const PickleTree& tree, std::span<const PickleItem> arguments,
                    PickleValue& made) {
  const bool named = arguments.size() == 2 && tree[arguments[1].value].kind == Kind::kText;
  if ((arguments.size() != 1 && !named) || tree[arguments[0].value].kind != Kind::kTimeDelta) {
    return Wrong("timezone with other arguments than a timedelta and perhaps a name");
  }
  made.kind = Kind::kTimeZone;
  made.number = tree[arguments[0].value].number;
  if (made.number > -kDayUs && made.number < kDayUs) return Ok();
  return Wrong("timezone that is a day or more from UTC");
}

Status MakeDateTime(const PickleTree& tree, std::span<const PickleItem> arguments,
                    PickleValue& made) {
  made.fits = arguments.size() == 2;
  if ((arguments.size() != 1 && !made.fits) || tree[arguments[0].value].kind != Kind::kBytes ||
      (made.fits && tree[arguments[1].value].kind != Kind::kTimeZone)) {
    return Wrong("datetime with other arguments than bytes and perhaps a timezone");
  }
  const auto local = ReadDatetime(tree.Content(arguments[0].value));
  if (!local) return Wrong(local.error().message);
  made.kind = Kind::kDateTime;
  made.number = static_cast<int64_t>(*local) - (made.fits ? tree[arguments[1].value].number : 0);
  return Ok();
}

}  // namespace

Status MakeTime(const PickleTree& tree, std::span<const PickleItem> arguments, PickleValue& made) {
  if (made.of == PickleClass::kTimeDelta) return MakeTimeDelta(tree, arguments, made);
  if (made.of == PickleClass::kTimeZone) return MakeTimeZone(tree, arguments, made);
  return MakeDateTime(tree, arguments, made);
}

}  // namespace muster::wire
