// Appends to a pickle: opcodes with their operands, and copies of values that were read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "rendezvous/wire/pickle_tree.h"

namespace muster::wire {

inline void AppendOp(std::string& out, PickleOp op) { out += static_cast<char>(op); }

/// The opcode and its operand, if that fits into an Int; otherwise false, and nothing.
template <typename Int, typename Number>
bool AppendIfFits(std::string& out, PickleOp op, Number number) {
  if (!std::in_range<Int>(number)) return false;
  AppendOp(out, op);
  AppendInt(out, static_cast<Int>(number));
  return true;
}

/// UTF-8; less than 4 GiB.
void AppendText(std::string& out, std::string_view text);

/// In the shortest form, as Python writes it.
void AppendNumber(std::string& out, int64_t number);

/// Appends opcodes that make the same value again, wherever they are put: without the memo, so that
/// what was shared is written again at each place. Since few bytes can thus stand for endlessly
/// many, `budget` says how many may still be appended, and counts down. Numbers and texts keep the
/// form in which they were read. kProtocol: the budget is spent, or the value is nested too deep
/// (or in itself).
Status AppendCopy(std::string& out, const PickleTree& tree, PickleId id, size_t& budget);

/// The budget is spent.
Error Unfolds(const PickleTree& tree);

}  // namespace muster::wire
