#include "bindings.h"
#include "etcd_plugin.h"

NB_MODULE(_native, module) {
  using namespace muster::python;
  BindErrors(module);
  module.def("load_etcd", [] { LoadEtcd(); }, "Makes the backends of etcd known; done by itself where needed.");
}
