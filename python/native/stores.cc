#include "bindings.h"

namespace muster::python {

void BindStores(nb::module_&) {}

}  // namespace muster::python
