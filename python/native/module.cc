#include "bindings.h"
#include "etcd_plugin.h"

NB_MODULE(_native, module) {
  using namespace muster::python;
  module.doc() = "The native core of muster; its names are found in muster and muster.rendezvous.";
  module.attr("__version__") = MUSTER_VERSION;
  BindErrors(module);
  BindNetwork(module);
  BindStores(module);
  BindRendezvous(module);
  module.def(
      "load_etcd", [] { LoadEtcd(); },
      "Makes the backends of etcd known; done by itself where needed.");
}
