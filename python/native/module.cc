#include <cstdlib>

#include "bindings.h"
#include "etcd_plugin.h"

NB_MODULE(_native, module) {
  using namespace muster::python;
  module.doc() = "The native core of muster; its names are found in muster and muster.rendezvous.";
  // What a daemon thread holds when Python ends is not our leak, but would be called one.
  nb::set_leak_warnings(std::getenv("MUSTER_TELL_LEAKS") != nullptr);
  module.attr("__version__") = MUSTER_VERSION;
  BindErrors(module);
  BindNetwork(module);
  BindStores(module);
  BindRendezvous(module);
  module.def(
      "load_etcd", [] { LoadEtcd(); },
      "Makes the backends of etcd known; done by itself where needed.");
}
