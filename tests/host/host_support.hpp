// Helpers for tests of the host machine: an owning handle, and accesses to memory that may fault.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/host/host_memory.hpp"
#include "support/turnstile.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

namespace host_test {
using namespace memsaver;
using namespace memsaver::detail;

inline constexpr std::size_t page = 64_KiB;

inline HostDriver machine(HostDriverOptions options = {}, std::size_t capacity = 64 * page) {
    options.granularity = page;
    return HostDriver{capacity, options};
}

inline unsigned char* bytes_at(Address address) { return reinterpret_cast<unsigned char*>(address); }

/// Returns whether the CPU may read the byte. Uses a system call, which returns an error where a load would fault.
inline bool readable(Address address) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const bool yes = ::write(ends[1], reinterpret_cast<const void*>(address), 1) == 1;
    ::close(ends[0]);
    ::close(ends[1]);
    return yes;
}

/// Reserved addresses with pages, unless the machine is lost.
struct Mapped {
    explicit Mapped(HostDriver d, std::size_t size = page) : Mapped{d, size, created(d, size)} {}
    Mapped(HostDriver d, std::size_t size, PageHandle pages) : driver{d}, bytes{size}, handle{pages} {
        REQUIRE(driver.reserve(bytes, 0, address).ok());
        map();
    }
    static PageHandle created(const HostDriver& d, std::size_t size) {
        PageHandle pages;
        REQUIRE(d.create(size, pages).ok());
        return pages;
    }
    void map() {
        REQUIRE(driver.map(address, bytes, handle).ok());
        REQUIRE(driver.allow_access(address, bytes).ok());
    }
    Status unmap() { return driver.unmap(address, bytes); }
    void give_back() {
        CHECK(unmap().ok());
        CHECK(driver.release(handle).ok());
        CHECK(driver.unreserve(address, bytes).ok());
    }

    HostDriver driver;
    std::size_t bytes;
    PageHandle handle;
    Address address = 0;
};

inline StreamRef open_stream(const HostDriver& driver) {
    StreamRef stream;
    REQUIRE(driver.open_stream(stream).ok());
    return stream;
}

inline EventRef open_event(const HostDriver& driver) {
    EventRef event;
    REQUIRE(driver.open_event({}, event).ok());
    return event;
}

using test::Turnstile; // a gate at which kernels wait until the test opens it
} // namespace host_test
