// core/store/zstd_library.h: the zstd of this machine, found when it is first needed. Nothing of it is here when we are built.
//
// What is declared is the same in every zstd from 1.4 on; tests/oracles/test_zstd_header.py compares it with theirs.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace millstream {

struct ZstdMissing : std::runtime_error {
  ZstdMissing() : std::runtime_error("this needs the library zstd, and none was found") {}
};

// Their ZSTD_CCtx and ZSTD_DCtx, of which nothing but the address is known.
struct ZstdPacker;
struct ZstdUnpacker;

struct ZstdIn {
  const void* data;
  std::size_t size, place;
};
struct ZstdOut {
  void* data;
  std::size_t size, place;
};

inline constexpr int zstd_compression_level = 100, zstd_checksum_flag = 201;  // of a packer
inline constexpr int zstd_window_log_max = 100;                               // of an unpacker
inline constexpr unsigned long long zstd_size_unknown = ~0ULL, zstd_size_error = ~0ULL - 1;

// The functions that are used.
struct ZstdLibrary {
  unsigned (*version_number)();
  unsigned (*is_error)(std::size_t);
  const char* (*get_error_name)(std::size_t);
  int (*min_level)();
  int (*max_level)();
  ZstdPacker* (*create_packer)();
  std::size_t (*free_packer)(ZstdPacker*);
  std::size_t (*set_packer)(ZstdPacker*, int, int);
  std::size_t (*compress_bound)(std::size_t);
  std::size_t (*compress)(ZstdPacker*, void*, std::size_t, const void*, std::size_t);
  ZstdUnpacker* (*create_unpacker)();
  std::size_t (*free_unpacker)(ZstdUnpacker*);
  std::size_t (*set_unpacker)(ZstdUnpacker*, int, int);
  std::size_t (*size_of_unpacker)(const ZstdUnpacker*);
  unsigned long long (*content_size)(const void*, std::size_t);
  std::size_t (*frame_size)(const void*, std::size_t);
  std::size_t (*decompress)(ZstdUnpacker*, void*, std::size_t, const void*, std::size_t);
  std::size_t (*decompress_stream)(ZstdUnpacker*, ZstdOut*, ZstdIn*);
};

namespace detail {

// Fills the table from a library; false if that has not every function, or is older than what is declared here.
inline bool filled_from(void* library, ZstdLibrary& table) {
  const auto find = [&]<typename Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    return function != nullptr;
  };
  return find("ZSTD_versionNumber", table.version_number) && table.version_number() >= 10'400 &&
         find("ZSTD_isError", table.is_error) && find("ZSTD_getErrorName", table.get_error_name) &&
         find("ZSTD_minCLevel", table.min_level) && find("ZSTD_maxCLevel", table.max_level) &&
         find("ZSTD_createCCtx", table.create_packer) && find("ZSTD_freeCCtx", table.free_packer) &&
         find("ZSTD_CCtx_setParameter", table.set_packer) && find("ZSTD_compressBound", table.compress_bound) &&
         find("ZSTD_compress2", table.compress) && find("ZSTD_createDCtx", table.create_unpacker) &&
         find("ZSTD_freeDCtx", table.free_unpacker) && find("ZSTD_DCtx_setParameter", table.set_unpacker) &&
         find("ZSTD_sizeof_DCtx", table.size_of_unpacker) && find("ZSTD_getFrameContentSize", table.content_size) &&
         find("ZSTD_findFrameCompressedSize", table.frame_size) && find("ZSTD_decompressDCtx", table.decompress) &&
         find("ZSTD_decompressStream", table.decompress_stream);
}

struct ZstdSearch {
  std::mutex lock;
  ZstdLibrary library{};
#ifdef __APPLE__
  std::vector<std::string> names{"libzstd.1.dylib", "libzstd.dylib", "/opt/homebrew/lib/libzstd.1.dylib"};
#else
  std::vector<std::string> names{"libzstd.so.1"};
#endif
};

// It is never destroyed: threads may unpack to the very end of the process.
inline ZstdSearch& zstd_search() {
  static auto& search = *new ZstdSearch;
  return search;
}

inline constinit std::atomic<const ZstdLibrary*> zstd_found = nullptr;

}  // namespace detail

// Looks under these names from now on, unless a library was found: that one stays.
inline void look_for_zstd(std::vector<std::string> names) {
  auto& search = detail::zstd_search();
  const std::scoped_lock locked(search.lock);
  search.names = std::move(names);
}

// The library, or nullptr where there is none; then the next call looks again.
inline const ZstdLibrary* find_zstd() {
  if (const auto* found = detail::zstd_found.load(std::memory_order_acquire)) return found;
  auto& search = detail::zstd_search();
  const std::scoped_lock locked(search.lock);
  if (const auto* found = detail::zstd_found.load(std::memory_order_acquire)) return found;
  for (const auto& name : search.names) {
    void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    if (ZstdLibrary table{}; detail::filled_from(library, table)) {
      search.library = table;
      detail::zstd_found.store(&search.library, std::memory_order_release);
      return &search.library;
    }
    ::dlclose(library);
  }
  return nullptr;
}

inline const ZstdLibrary& zstd() {
  const auto* const found = find_zstd();
  if (found == nullptr) throw ZstdMissing();
  return *found;
}

}  // namespace millstream
