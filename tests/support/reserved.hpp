// Addresses for tests that map memory themselves.
#pragma once

#include "memsaver/driver/owned.hpp"

#include <cstddef>
#include <doctest/doctest.h>

namespace test {

inline memsaver::detail::Reservation reserved(const memsaver::AnyDriver& driver, std::size_t bytes,
                                              std::size_t alignment) {
    memsaver::detail::Reservation addresses;
    REQUIRE(addresses.open(driver, bytes, alignment).ok());
    return addresses;
}

/// Pages mapped at reserved addresses, with access; owned.
struct Backed {
    Backed(memsaver::Address address, std::size_t bytes) : range_{address, bytes} {}
    memsaver::Status create(const memsaver::AnyDriver& driver) { return pages_.open(driver, range_.bytes); }
    memsaver::Status map(const memsaver::AnyDriver& driver) {
        const memsaver::Status status = mapping_.open(driver, range_, pages_.get().handle);
        return status.ok() ? driver.allow_access(range_.address, range_.bytes) : status;
    }
    memsaver::Status unmap() { return mapping_.close(); }
    [[nodiscard]] std::size_t bytes() const { return range_.bytes; }

private:
    memsaver::Range range_;
    memsaver::detail::OwnedPages pages_; // declared before the mapping, so that it is destroyed after it
    memsaver::detail::Mapping mapping_;
};
} // namespace test
