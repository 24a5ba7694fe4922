// Everything about the rendezvous. Most programs need GetRendezvousHandler() and what it returns.
//
//   muster::RendezvousParameters parameters("muster", "host:29400", "run-1", 2, 4);
//   auto handler = muster::GetRendezvousHandler(parameters);
//   auto info = handler->NextRendezvous();   // info.rank, info.world_size, info.store
#pragma once

#include "muster/c10d_rendezvous.h"
#include "muster/coordinated_rendezvous.h"
#include "muster/delay.h"
#include "muster/dynamic_rendezvous.h"
#include "muster/etcd_rendezvous.h"
#include "muster/network.h"
#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_error.h"
#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"
#include "muster/rendezvous_registry.h"
#include "muster/static_rendezvous.h"
#include "muster/store_utilities.h"
