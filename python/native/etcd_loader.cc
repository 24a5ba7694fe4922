#include <dlfcn.h>
#include <nanobind/nanobind.h>

#include <string>

#include "etcd_plugin.h"

namespace nb = nanobind;

namespace muster::python {

namespace {

/// The folder of this module's file.
std::string OwnFolder() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&LoadEtcd), &self) == 0 || self.dli_fname == nullptr)
    return ".";
  const std::string file = self.dli_fname;
  return file.substr(0, file.rfind('/'));
}

const EtcdPlugin* Load() {
  const std::string file = OwnFolder() + "/lib/libmuster_etcd.so";
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, kEtcdPluginSymbol);
  if (found == nullptr) {
    const std::string why = dlerror();
    throw nb::import_error(("muster's client of etcd cannot be loaded: " + why).c_str());
  }
  const auto* const plugin = static_cast<const EtcdPlugin*>(found);
  plugin->enable();
  return plugin;
}

}  // namespace

const EtcdPlugin& LoadEtcd() {
  static const EtcdPlugin* const plugin = Load();
  return *plugin;
}

}  // namespace muster::python
