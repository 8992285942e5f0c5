// A place as a default argument is the caller's.
#include "memsaver/base/source_place.hpp"

#include <doctest/doctest.h>

#include <string>

namespace base_source_place_test {

using namespace memsaver;

namespace {
SourcePlace called_from(SourcePlace place = SourcePlace::here()) { return place; }
} // namespace

TEST_CASE("a default argument notes the line, file and function of the call") {
    const SourcePlace place = called_from();
    CHECK(place.line == static_cast<unsigned>(__LINE__) - 1);
    CHECK(place.text() == std::string{__FILE__} + ':' + std::to_string(place.line));
    CHECK(std::string{place.function} == __func__);
}

} // namespace base_source_place_test
