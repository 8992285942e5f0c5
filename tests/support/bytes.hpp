// Byte patterns in device memory, written and read only through the driver, so that they work on any machine.
#pragma once

#include "memsaver/driver/driver.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <doctest/doctest.h>
#include <vector>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

/// Waits for a stream's work so far, and for no other.
template <class D>
void wait_for(const D& driver, StreamRef stream) {
    EventRef event;
    REQUIRE(driver.open_event(stream, event).ok());
    CHECK(driver.record(event, stream).ok());
    CHECK(driver.wait(event).ok());
    CHECK(driver.close_event(event).ok());
}

/// Enqueues one copy on its own stream and waits for it.
template <class D, class Enqueue>
void on_own_stream(const D& driver, Enqueue&& enqueue) {
    StreamRef stream;
    REQUIRE(driver.open_stream(stream).ok());
    CHECK(enqueue(stream).ok());
    wait_for(driver, stream);
    CHECK(driver.close_stream(stream).ok());
}

/// Returns how much memory a device has, and how much of it is free.
template <class D>
DeviceMemory memory_of(const D& driver) {
    DeviceMemory memory;
    REQUIRE(driver.memory(memory).ok());
    return memory;
}

inline Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

template <class D>
void write_bytes(const D& driver, const void* to, const std::vector<unsigned char>& bytes) {
    on_own_stream(driver,
                  [&](StreamRef s) { return driver.copy_to_device(address_of(to), bytes.data(), bytes.size(), s); });
}

template <class D>
std::vector<unsigned char> read_bytes(const D& driver, const void* from, std::size_t count) {
    std::vector<unsigned char> bytes(count);
    on_own_stream(driver, [&](StreamRef s) { return driver.copy_to_host(bytes.data(), address_of(from), count, s); });
    return bytes;
}

/// Returns bytes as work in a stream reads them.
template <class D>
std::vector<unsigned char> bytes_behind(const D& driver, StreamRef stream, const void* from, std::size_t count) {
    std::vector<unsigned char> bytes(count);
    CHECK(driver.copy_to_host(bytes.data(), address_of(from), count, stream).ok());
    wait_for(driver, stream);
    return bytes;
}

/// Returns bytes that differ for every seed and in which no two windows are alike. Every word occurs twice, so that a
/// codec can compress them.
std::vector<unsigned char> pattern(std::size_t count, std::uint64_t seed); // pattern.cpp

/// Returns a part of some bytes.
inline std::vector<unsigned char> part_of(const std::vector<unsigned char>& bytes, std::size_t offset,
                                          std::size_t count) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

template <class D>
void write_pattern(const D& driver, const void* to, std::size_t count, std::uint64_t seed) {
    write_bytes(driver, to, pattern(count, seed));
}

template <class D>
bool has_pattern(const D& driver, const void* from, std::size_t count, std::uint64_t seed) {
    return read_bytes(driver, from, count) == pattern(count, seed);
}

/// Returns whether every byte is `value`: memory that the CPU may read, or a device's.
inline bool filled_with(const void* at, std::size_t count, unsigned char value) {
    const auto* const bytes = static_cast<const unsigned char*>(at);
    // As one call into the C library: a loop over bytes took half the time of some sanitized tests.
    return count == 0 || (bytes[0] == value && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}
template <class D>
bool all_are(const D& driver, const void* from, std::size_t count, unsigned char value) {
    return filled_with(read_bytes(driver, from, count).data(), count, value);
}
} // namespace test
