#include "muster/network.h"

#include "arguments.h"
#include "bindings.h"
#include "blocking.h"

namespace muster::python {

void BindNetwork(nb::module_& module) {
  module.def(
      "get_free_port", [] { return Blocking([] { return FreePort(); }); },
      nb::sig("def get_free_port() -> int"),
      "A TCP port that was free a moment ago. If no other process may take it meanwhile,\n"
      "use get_socket_with_port() and pass the socket on.");
  module.def(
      "listen_on_free_port", [] { return Blocking([] { return ListenOnAFreePort(); }); },
      nb::sig("def listen_on_free_port() -> int"),
      "The descriptor of a socket that listens on a free port; the caller closes it.");
}

}  // namespace muster::python
