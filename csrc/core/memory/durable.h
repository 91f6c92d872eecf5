// core/memory/durable.h: pieces of memory -> a file whose bytes are on the disk, without a thread being asked for in between.
#pragma once

#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <system_error>

namespace millstream {

// Hands all parts to `write(parts, count, offset)`, which takes as many bytes as it likes and says how many, as pwritev does.
// The parts are used up.
template <typename Write>
void write_all(std::span<iovec> parts, const Write& write) {
  off_t offset = 0;
  while (!parts.empty()) {
    const auto most = std::min<std::size_t>(parts.size(), IOV_MAX);
    const auto done = write(parts.data(), static_cast<int>(most), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw std::system_error(errno, std::generic_category());
    offset += done;
    auto left = static_cast<std::size_t>(done);
    while (!parts.empty() && left >= parts.front().iov_len) {
      left -= parts.front().iov_len;
      parts = parts.subspan(1);
    }
    if (left) {
      parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + left;
      parts.front().iov_len -= left;
    }
  }
}

// Writes all parts end to end from the beginning of a file, and waits until they are on the disk.
inline void write_synced(int file, std::span<iovec> parts) {
  write_all(parts, [&](const iovec* from, int count, off_t offset) { return ::pwritev(file, from, count, offset); });
  while (::fsync(file) != 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category());
}

}  // namespace millstream
