// tests/oracles/zstd_header.cpp: what core/store/zstd_library.h declares is what zstd's own header says. It is only compiled.
#include <zstd.h>

#include <cstddef>
#include <type_traits>

#include "core/store/zstd_library.h"

using namespace millstream;

static_assert(ZSTD_c_compressionLevel == zstd_compression_level && ZSTD_c_checksumFlag == zstd_checksum_flag);
static_assert(ZSTD_d_windowLogMax == zstd_window_log_max);
static_assert(ZSTD_CONTENTSIZE_UNKNOWN == zstd_size_unknown && ZSTD_CONTENTSIZE_ERROR == zstd_size_error);

template <typename Ours, typename Theirs>
constexpr bool same_buffer = sizeof(Ours) == sizeof(Theirs) && offsetof(Theirs, size) == offsetof(Ours, size) &&
                             offsetof(Theirs, pos) == offsetof(Ours, place);
static_assert(same_buffer<ZstdIn, ZSTD_inBuffer> && offsetof(ZSTD_inBuffer, src) == offsetof(ZstdIn, data));
static_assert(same_buffer<ZstdOut, ZSTD_outBuffer> && offsetof(ZSTD_outBuffer, dst) == offsetof(ZstdOut, data));

// Types under our names, and theirs: a parameter is a number.
template <typename T> struct Named { using type = T; };
template <> struct Named<ZSTD_CCtx> { using type = ZstdPacker; };
template <> struct Named<ZSTD_DCtx> { using type = ZstdUnpacker; };
template <> struct Named<ZSTD_inBuffer> { using type = ZstdIn; };
template <> struct Named<ZSTD_outBuffer> { using type = ZstdOut; };
template <> struct Named<ZSTD_cParameter> { using type = int; };
template <> struct Named<ZSTD_dParameter> { using type = int; };
template <typename T> struct Named<const T> { using type = const typename Named<T>::type; };
template <typename T> struct Named<T*> { using type = typename Named<T>::type*; };
static_assert(sizeof(ZSTD_cParameter) == sizeof(int) && sizeof(ZSTD_dParameter) == sizeof(int));

template <typename Result, typename... Given>
auto named(Result (*)(Given...)) -> typename Named<Result>::type (*)(typename Named<Given>::type...);
#define SAME(theirs, ours) static_assert(std::is_same_v<decltype(named(&theirs)), decltype(ZstdLibrary::ours)>)

SAME(ZSTD_versionNumber, version_number);
SAME(ZSTD_isError, is_error);
SAME(ZSTD_getErrorName, get_error_name);
SAME(ZSTD_minCLevel, min_level);
SAME(ZSTD_maxCLevel, max_level);
SAME(ZSTD_createCCtx, create_packer);
SAME(ZSTD_freeCCtx, free_packer);
SAME(ZSTD_CCtx_setParameter, set_packer);
SAME(ZSTD_compressBound, compress_bound);
SAME(ZSTD_compress2, compress);
SAME(ZSTD_createDCtx, create_unpacker);
SAME(ZSTD_freeDCtx, free_unpacker);
SAME(ZSTD_DCtx_setParameter, set_unpacker);
SAME(ZSTD_sizeof_DCtx, size_of_unpacker);
SAME(ZSTD_getFrameContentSize, content_size);
SAME(ZSTD_findFrameCompressedSize, frame_size);
SAME(ZSTD_decompressDCtx, decompress);
SAME(ZSTD_decompressStream, decompress_stream);
static_assert(sizeof(ZstdLibrary) == 18 * sizeof(void*), "every function is compared");
