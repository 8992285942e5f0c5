// The version in the headers is the one that the build was configured with.
#include "support/machines.hpp"

namespace core_version_test {

TEST_CASE("headers and build name the same version") {
    const memsaver::Version version = memsaver::version;
    CHECK(std::to_string(version.major) + '.' + std::to_string(version.minor) + '.' + std::to_string(version.patch) ==
          MEMSAVER_TEST_VERSION);
}
} // namespace core_version_test
