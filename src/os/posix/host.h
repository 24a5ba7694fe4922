// This machine as its network sees it: names and addresses.
//
// Any thread. Name lookups block, but never for longer than kNameLookupMax each: a resolver that
// hangs must not hang a rendezvous.
#pragma once

#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"

namespace muster {

inline constexpr Duration kNameLookupMax = 5s;

/// What the kernel calls this machine; "localhost" where it has no name for it.
std::string HostName();

/// The canonical name of HostName() if that has a domain, otherwise HostName(). Never fails. No
/// reverse lookup: the name that belongs to an address is often one that no peer can resolve.
std::string FullyQualifiedHostName();

/// Whether `host`, a name or a literal, is this machine: a loopback address (also one mapped into
/// IPv6), an address of any interface, the machine's name in any case, or a name with one of the
/// same addresses. A name that cannot be looked up is not this machine.
bool IsThisHost(const std::string& host);

/// The same, but no name is looked up except `host`: an address must be one of this machine's.
bool IsHere(const std::string& host);

/// The address from which this machine would connect to `peer`; its name, if that address is
/// unknown or useless to others. Sends nothing.
std::string AddressTowards(const Endpoint& peer);

/// Whether the resolver knows the name; after a temporary failure, the lookup is repeated for some
/// seconds. kNotFound.
Status CanBeResolved(const std::string& host);

/// The file that this process runs; empty if unknown.
std::string OwnPath();

}  // namespace muster
