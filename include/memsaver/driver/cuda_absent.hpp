// CudaDriver where the CUDA headers are not: the same type to write programs with, which cannot be made.
// Never included by itself; its namespace keeps it apart from the real one in programs that were built partly with the
// headers and partly without.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/driver/cuda_availability.hpp"
#include "memsaver/driver/cuda_options.hpp"
#include "memsaver/driver/system_memory.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace memsaver::inline v0_1::inline without_cuda_headers {

/// `available()` says no, and the constructor throws Unavailable with the same text. As there is never an object, no
/// method is ever called.
class CudaDriver : public SystemMemory {
public:
    explicit CudaDriver(int device, const CudaDriverOptions& = {}, const char* library = default_cuda_library) {
        throw Unavailable{available(device, library).reason};
    }
    CudaDriver(const CudaDriver&) noexcept = default;
    CudaDriver& operator=(const CudaDriver&) noexcept = default;
    ~CudaDriver() = default;

    [[nodiscard]] static CudaAvailability available(int = 0, const char* = default_cuda_library) {
        return {CudaProblem::built_without_headers,
                "memsaver was built without the CUDA toolkit's headers (it needs those of CUDA 12.0 or newer)"};
    }
    [[nodiscard]] static int device_count(const char* = default_cuda_library) { return 0; }

    [[nodiscard]] int device() const noexcept { return -1; }
    [[nodiscard]] std::string name() const { return "no CUDA device"; }
    friend bool operator==(const CudaDriver& a, const CudaDriver& b) noexcept { return a.device_ == b.device_; }

    Status granularity(std::size_t&) const noexcept { return absent(); }
    Status memory(DeviceMemory&) const noexcept { return absent(); }
    Status reserve(std::size_t, std::size_t, Address&) const noexcept { return absent(); }
    Status unreserve(Address, std::size_t) const noexcept { return absent(); }
    Status create(std::size_t, PageHandle&) const noexcept { return absent(); }
    Status release(PageHandle) const noexcept { return absent(); }
    Status map(Address, std::size_t, PageHandle) const noexcept { return absent(); }
    Status unmap(Address, std::size_t) const noexcept { return absent(); }
    Status allow_access(Address, std::size_t) const noexcept { return absent(); }
    Status allow_reading(Address, std::size_t) const noexcept { return absent(); }
    Status open_stream(StreamRef&) const noexcept { return absent(); }
    Status close_stream(StreamRef) const noexcept { return absent(); }
    Status open_event(StreamRef, EventRef&) const noexcept { return absent(); }
    Status close_event(EventRef) const noexcept { return absent(); }
    Status record(EventRef, StreamRef) const noexcept { return absent(); }
    Status record_device(EventRef) const noexcept { return absent(); }
    Status follow(StreamRef, EventRef) const noexcept { return absent(); }
    Status query(EventRef, bool&) const noexcept { return absent(); }
    Status wait(EventRef) const noexcept { return absent(); }
    Status drain() const noexcept { return absent(); }
    Status capturing(StreamRef, bool&) const noexcept { return absent(); }
    Status copy_to_host(void*, Address, std::size_t, StreamRef) const noexcept { return absent(); }
    Status copy_to_device(Address, const void*, std::size_t, StreamRef) const noexcept { return absent(); }
    Status fill(Address, unsigned char, std::size_t, StreamRef) const noexcept { return absent(); }
    Status owns_stream(StreamRef, bool&) const noexcept { return absent(); }
    Status pool_memory(PoolRef, std::size_t&) const noexcept { return absent(); }
    Status trim_pool(PoolRef, std::size_t) const noexcept { return absent(); }
    Status lane(Direction, StreamRef&) const noexcept { return absent(); }
    Status pin_host(void*, std::size_t) const noexcept { return absent(); }
    Status unpin_host(void*) const noexcept { return absent(); }
    Status allocate_plain(std::size_t, Address&) const noexcept { return absent(); }
    Status free_plain(Address) const noexcept { return absent(); }
    Status begin_capture(StreamRef, CaptureMode) const noexcept { return absent(); }
    Status end_capture(StreamRef, GraphRef&) const noexcept { return absent(); }
    Status update_graph(StreamRef, GraphRef&) const noexcept { return absent(); }
    Status launch(GraphRef, StreamRef) const noexcept { return absent(); }
    Status close_graph(GraphRef) const noexcept { return absent(); }

private:
    static Status absent() noexcept { return {StatusKind::gone, -1, "MEMSAVER_BUILT_WITHOUT_CUDA_HEADERS"}; }

    std::shared_ptr<const void> device_; // as large as the real one's
};

static_assert(Driver<CudaDriver> && Plain<CudaDriver> && Captures<CudaDriver>);
static_assert(Trims<CudaDriver> && StreamOwners<CudaDriver>);
static_assert(Lanes<CudaDriver> && HostPages<CudaDriver> && Files<CudaDriver>);

} // namespace memsaver::inline v0_1::inline without_cuda_headers
