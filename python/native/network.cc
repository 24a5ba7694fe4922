#include "muster/network.h"

#include "arguments.h"
#include "bindings.h"
#include "blocking.h"

namespace muster::python {

void BindNetwork(nb::module_& module) {
  module.def(
      "get_free_port", [] { return Blocking([] { return FreePort(); }); },
      nb::sig("def get_free_port() -> int"),
      "A TCP port that was free a moment ago. Where nobody may take it meanwhile, use\n"
      "get_socket_with_port() and pass the socket on.");
}

}  // namespace muster::python
