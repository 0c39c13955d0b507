// Which network the processes of a trial talk over. Each process describes the place where it runs; from all
// descriptions every rank reaches the same decision: the loopback inside one machine, otherwise a network
// that all machines share. HEADSWEEP_INTERFACE=<name> (ib0, say) leaves only that interface.
#pragma once

#include <string>
#include <vector>

#include "trainer/collective.h"

namespace headsweep {

struct NetworkInterface {
  std::string name;
  std::string address;  // "10.1.2.3"
  int prefix = 0;       // bits of the network: 24
  int speed = 0;        // Mbit/s, 0 = not known
};

struct Place {
  std::string machine;  // equal for two processes that share a loopback: boot id and network namespace
  std::string host;     // its name, for messages
  std::vector<NetworkInterface> interfaces;  // up, IPv4, not loopback; fastest first, then by name
};

Place DescribePlace();
std::string FormatPlace(const Place& place);  // one line of JSON
Place ParsePlace(const std::string& text);    // throws ConfigError for anything else

// What `rank` binds to. Two machines with the same address do not share a network (bridges of
// containers have one address everywhere). Machines without a common network: the first interface of each, in
// the hope of a route. Throws ConfigError when several machines take part and this one has no interface.
NetworkInterface ChooseInterface(const std::vector<Place>& places, int rank);

// Tells the peers where this process is, hears where they are, and chooses.
NetworkInterface MeetOnNetwork(Rendezvous& rendezvous, const CollectiveOptions& options);

}  // namespace headsweep
