// A meeting: participants that know only the address of a store find each other.
//
//   store_meeting                        a server and four participants, all in this process
//   store_meeting HOST:PORT RANK WORLD   one participant of WORLD, at a server that runs elsewhere
//
// The second form is that of a real job: start a server with `muster serve`, then this program once
// on each machine, with the ranks 0 to WORLD-1. Any TCPStore server will do, PyTorch's too.
#include <muster/store_server.h>
#include <muster/tcp_store.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

struct Address {
  std::string host;
  uint16_t port = 0;
};

// Splits "host:29500" or "[::1]:29500".
Address ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw std::invalid_argument("no port in " + text);
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return {host, static_cast<uint16_t>(std::stoi(text.substr(colon + 1)))};
}

// One participant, in a thread or on a machine of its own.
void Attend(const Address& server, int rank, int world) {
  // Connecting retries until a server answers, so the order of starts does not matter. The timeout
  // also limits every wait below: if a participant never comes, the result is an error, not a hang.
  muster::TcpStoreOptions options;
  options.port = server.port;
  options.timeout = 30s;
  muster::TcpStore store(server.host, options);

  // Publish the own name. Real jobs put their address here.
  store.Set("meeting/name/" + std::to_string(rank), "participant-" + std::to_string(rank));

  // Wait for all. A barrier's key works once; the next meeting needs another one.
  store.Barrier("meeting/0", world);

  // From here on all names are in the store, and no read waits.
  std::vector<std::string> keys;
  for (int other = 0; other < world; ++other) {
    keys.push_back("meeting/name/" + std::to_string(other));
  }
  std::string line = "rank " + std::to_string(rank) + " met:";
  for (const std::string& name : store.MultiGet(keys)) line += " " + name;
  std::printf("%s\n", line.c_str());

  // The last participant that leaves knows that the server is not needed any more.
  if (store.Add("meeting/left", 1) == world) std::printf("all %d have met\n", world);
}

// The whole meeting in one process. Each thread has a TcpStore of its own: a store executes one
// call at a time, and a thread that waits in it would delay the others.
void MeetHere(int world) {
  muster::StoreServerOptions options;
  options.host = "127.0.0.1";
  options.port = 0;  // Any free port; port() returns it.
  const muster::StoreServer server(options);
  std::printf("the store listens on %s\n", server.address().c_str());

  const Address address{options.host, server.port()};
  std::vector<std::exception_ptr> failures(static_cast<size_t>(world));
  {
    std::vector<std::jthread> participants;  // Joined at the end of this block.
    for (int rank = 0; rank < world; ++rank) {
      participants.emplace_back(
          [&address, &failure = failures[static_cast<size_t>(rank)], rank, world] {
            try {
              Attend(address, rank, world);
            } catch (...) {
              failure = std::current_exception();
            }
          });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 1) {
      MeetHere(4);
    } else if (argc == 4) {
      Attend(ParseAddress(argv[1]), std::stoi(argv[2]), std::stoi(argv[3]));
    } else {
      std::fprintf(stderr, "usage: %s [HOST:PORT RANK WORLD]\n", argv[0]);
      return 2;
    }
  } catch (const muster::DistError& error) {  // The base of muster's exceptions.
    std::fprintf(stderr, "the meeting failed: %s\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
