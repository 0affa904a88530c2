#include <shardgrad/dist/bootstrap/reception.h>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {

Reception::Reception(std::vector<Socket> listeners, std::string token, int count, const std::string& machine)
    : Host(std::move(listeners), std::move(token), 0), guests_(size_t(count)), machines_(size_t(count)) {
  machines_[0] = printable(machine.c_str(), kLongestMachine);  // as guests say theirs
  allow_descriptors(size_t(count) - 1, concat("rank 0 has a connection to each of ", count - 1, " others"));
}

std::string Reception::contradiction(const Guest& guest) const {
  int expected = int(guests_.size()), number = guest.number;
  if (guest.count != expected)
    return concat("rank 0 was started with WORLD_SIZE=", expected, ", rank ", number, " on ", guest.machine,
                  " with WORLD_SIZE=", guest.count, "; give every process the same");
  if (number < 0 || number >= expected)
    return concat("it has RANK=", number, ", which WORLD_SIZE=", expected, " does not allow");
  if (number == 0 || (guests_[size_t(number)] && is_open(guests_[size_t(number)])))
    return concat("two processes have RANK=", number, ": on ", machines_[size_t(number)], " and on ", guest.machine,
                  "; give every process its own");
  return {};
}

void Reception::welcome(const Guest& guest, Socket socket) {
  machines_[size_t(guest.number)] = guest.machine;
  guests_[size_t(guest.number)] = std::move(socket);
}

std::vector<int> Reception::missing() const {
  std::vector<int> numbers;
  for (size_t n = 1; n < guests_.size(); ++n)
    if (!guests_[n]) numbers.push_back(int(n));
  return numbers;
}

}  // namespace shardgrad::dist
