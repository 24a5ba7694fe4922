// Options as text, as --rdzv-conf takes them: "k1=v1,k2=v2".
#include <algorithm>
#include <stdexcept>

#include "base/text.h"
#include "base/trim.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

RendezvousConfig ParseRendezvousConfig(std::string_view text) {
  RendezvousConfig config;
  if (Trim(text).empty()) return config;
  size_t position = 1;
  for (size_t begin = 0; begin <= text.size(); ++position) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    // Only the first '=' divides: a value may be a path with a query, or another option's text.
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = Trim(item.substr(0, equals));
    if (key.empty()) {
      throw std::invalid_argument(Concat(
          "The rendezvous configuration string must be in format k1=v1,k2=v2. Item ", position,
          " ('", Printable(item), "') has no option name in '", Printable(text), "'."));
    }
    const std::string_view value = equals < item.size() ? Trim(item.substr(equals + 1)) : "";
    if (value.empty()) {
      throw std::invalid_argument(Concat("The rendezvous configuration option '", Printable(key),
                                         "' must have a value specified, but item ", position,
                                         " has no value. The format is k1=v1,k2=v2."));
    }
    config.insert_or_assign(std::string(key), std::string(value));
  }
  return config;
}

}  // namespace muster
