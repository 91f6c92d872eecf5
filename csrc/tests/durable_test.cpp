// What is written in pieces, however many and however small, lies in the file end to end; what cannot be written throws.
#include "core/memory/durable.h"

#include <stdio.h>

#include <string>
#include <vector>

#include "check.h"

using namespace millstream;

int main() {
  std::FILE* const file = std::tmpfile();
  std::vector<std::string> pieces;
  std::string whole;
  for (int number = 0; number < 3000; ++number) {
    pieces.push_back(std::to_string(number) + std::string(static_cast<std::size_t>(number % 5), 'x'));
    if (number % 7 == 0) pieces.back().clear();
    whole += pieces.back();
  }
  std::vector<iovec> parts;
  for (auto& piece : pieces) parts.push_back({piece.data(), piece.size()});
  write_synced(::fileno(file), parts);
  std::string found(whole.size() + 1, '\0');
  found.resize(static_cast<std::size_t>(::pread(::fileno(file), found.data(), found.size(), 0)));
  CHECK(found == whole);
  std::fclose(file);

  for (const std::size_t most : {1u, 2u, 3u, 7u, 1000u}) {  // however little the system takes at once, and is interrupted
    parts.clear();
    for (auto& piece : pieces) parts.push_back({piece.data(), piece.size()});
    std::string taken;
    bool interrupted = false;
    write_all(parts, [&](const iovec* from, int count, off_t offset) -> ssize_t {
      CHECK(static_cast<std::size_t>(offset) == taken.size());
      if ((interrupted = !interrupted)) return errno = EINTR, -1;
      std::size_t room = most;
      for (int part = 0; part < count && room; ++part) {
        const auto bytes = std::min(room, from[part].iov_len);
        taken.append(static_cast<const char*>(from[part].iov_base), bytes);
        room -= bytes;
      }
      return static_cast<ssize_t>(most - room);
    });
    CHECK(taken == whole);
  }

  bool refused = false;
  char byte = 'x';
  std::vector<iovec> one{{&byte, 1}};
  try {
    write_synced(-1, one);
  } catch (const std::system_error& error) {
    refused = error.code().value() == EBADF;
  }
  CHECK(refused);
}
