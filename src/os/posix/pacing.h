// Sockets that carry small messages, both ways, and gain nothing from being paced.
#pragma once

namespace muster {

/// BBR paces what it sends: a timer and two looks at the clock for each segment. For messages of a
/// few dozen bytes that is a tenth of all that sending costs, and buys nothing. Reno is in every
/// Linux; any other choice of the administrator is respected.
void AvoidPacing(int fd);

}  // namespace muster
