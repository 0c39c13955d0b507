#include "trainer/collective_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

const NetworkInterface kLoopback = {"lo", "127.0.0.1", 8, 0};

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<NetworkInterface> ListInterfaces() {
  const char* only = std::getenv("HEADSWEEP_INTERFACE");
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw IoError("getifaddrs", "network interfaces", errno);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (only != nullptr && *only != '\0' && std::string(only) != entry->ifa_name) continue;
    NetworkInterface found;
    found.name = entry->ifa_name;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    found.address = text;
    const auto* mask = reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask);
    found.prefix = mask != nullptr ? std::popcount(mask->sin_addr.s_addr) : 32;
    found.speed = std::max(0, std::atoi(FirstLine("/sys/class/net/" + found.name + "/speed").c_str()));
    interfaces.push_back(std::move(found));
  }
  ::freeifaddrs(first);
  std::sort(interfaces.begin(), interfaces.end(), [](const NetworkInterface& a, const NetworkInterface& b) {
    return std::tuple(-a.speed, a.name, a.address) < std::tuple(-b.speed, b.name, b.address);
  });
  return interfaces;
}

// "10.1.2.3", 24 -> the number of network 10.1.2.0/24.
std::uint32_t NetworkOf(const std::string& address, int prefix) {
  in_addr bytes{};
  if (::inet_pton(AF_INET, address.c_str(), &bytes) != 1)
    throw ConfigError(fmt::format("{} is no IPv4 address", address));
  const std::uint32_t host = ntohl(bytes.s_addr);
  return prefix == 0 ? 0 : host & (~std::uint32_t{0} << (32 - std::clamp(prefix, 1, 32)));
}

const NetworkInterface* FindIn(const Place& place, std::uint32_t network, int prefix) {
  for (const NetworkInterface& interface : place.interfaces)
    if (interface.prefix == prefix && NetworkOf(interface.address, prefix) == network) return &interface;
  return nullptr;
}

// Every machine's interface in this network; nothing when one has none, or two have one address.
std::optional<std::map<std::string, NetworkInterface>> InterfacesIn(const std::vector<Place>& places,
                                                                    const NetworkInterface& candidate) {
  const std::uint32_t network = NetworkOf(candidate.address, candidate.prefix);
  std::map<std::string, NetworkInterface> by_machine;
  std::map<std::string, std::string> by_address;
  for (const Place& place : places) {
    const NetworkInterface* interface = FindIn(place, network, candidate.prefix);
    if (interface == nullptr) return std::nullopt;
    by_machine.emplace(place.machine, *interface);
    const auto [owner, is_new] = by_address.emplace(interface->address, place.machine);
    if (!is_new && owner->second != place.machine) return std::nullopt;
  }
  return by_machine;
}

}  // namespace

Place DescribePlace() {
  Place place;
  struct stat net = {};
  if (::stat("/proc/self/ns/net", &net) != 0) throw IoError("stat", "/proc/self/ns/net", errno);
  place.machine = fmt::format("{}:{}", FirstLine("/proc/sys/kernel/random/boot_id"), net.st_ino);
  char host[256] = {};
  place.host = ::gethostname(host, sizeof host - 1) == 0 ? host : "unknown";
  place.interfaces = ListInterfaces();
  return place;
}

std::string FormatPlace(const Place& place) {
  nlohmann::json interfaces = nlohmann::json::array();
  for (const NetworkInterface& i : place.interfaces)
    interfaces.push_back({i.name, i.address, i.prefix, i.speed});
  return nlohmann::json{{"machine", place.machine}, {"host", place.host}, {"interfaces", interfaces}}.dump();
}

Place ParsePlace(const std::string& text) {
  try {
    const nlohmann::json parsed = nlohmann::json::parse(text);
    Place place;
    parsed.at("machine").get_to(place.machine);
    parsed.at("host").get_to(place.host);
    for (const nlohmann::json& i : parsed.at("interfaces"))
      place.interfaces.push_back({i.at(0), i.at(1), i.at(2), i.at(3)});
    return place;
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(fmt::format("a peer describes its place as \"{:.200}\": {}", text, error.what()));
  }
}

NetworkInterface ChooseInterface(const std::vector<Place>& places, int rank) {
  const Place& mine = places.at(static_cast<std::size_t>(rank));
  if (std::all_of(places.begin(), places.end(), [&](const Place& p) { return p.machine == mine.machine; }))
    return kLoopback;
  for (const NetworkInterface& candidate : places.front().interfaces)
    if (const auto common = InterfacesIn(places, candidate)) return common->at(mine.machine);
  if (mine.interfaces.empty())
    throw ConfigError(fmt::format(
        "rank {} on {} has no network interface that other machines can reach: bring one up, or correct "
        "HEADSWEEP_INTERFACE",
        rank, mine.host));
  return mine.interfaces.front();
}

NetworkInterface MeetOnNetwork(Rendezvous& rendezvous, const CollectiveOptions& options) {
  rendezvous.Set(fmt::format("place.{}", options.rank), FormatPlace(DescribePlace()));
  std::vector<Place> places;
  for (int rank = 0; rank < options.world_size; ++rank)
    places.push_back(ParsePlace(rendezvous.Get(fmt::format("place.{}", rank), options.timeout_seconds)));
  return ChooseInterface(places, options.rank);
}

}  // namespace headsweep
