#include "rendezvous/wire/pickle_opcodes.h"

#include "base/text.h"

namespace muster::wire {

namespace {

struct ForeignOpcode {
  uint8_t opcode;
  std::string_view name;
};

// Those of Python that are not in PickleOp, and PROTO, which is refused except at the beginning.
constexpr ForeignOpcode kForeign[] = {
    {'c', "GLOBAL"},       {'i', "INST"},
    {'o', "OBJ"},          {0x92, "NEWOBJ_EX"},
    {'P', "PERSID"},       {'Q', "BINPERSID"},
    {0x82, "EXT1"},        {0x83, "EXT2"},
    {0x84, "EXT4"},        {'I', "INT"},
    {'L', "LONG"},         {0x8b, "LONG4"},
    {'F', "FLOAT"},        {'S', "STRING"},
    {'T', "BINSTRING"},    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},      {0x8d, "BINUNICODE8"},
    {0x8e, "BINBYTES8"},   {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
    {'l', "LIST"},         {'d', "DICT"},
    {0x91, "FROZENSET"},   {'0', "POP"},
    {'1', "POP_MARK"},     {'2', "DUP"},
    {'p', "PUT"},          {'q', "BINPUT"},
    {'r', "LONG_BINPUT"},  {'g', "GET"},
    {0x80, "PROTO"},
};

}  // namespace

std::string OpcodeName(uint8_t opcode) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string shown = Concat("0x", kHex[opcode >> 4], kHex[opcode & 15]);
  for (const ForeignOpcode& foreign : kForeign) {
    if (foreign.opcode == opcode) shown += Concat(" (", foreign.name, ')');
  }
  return shown;
}

}  // namespace muster::wire
