// The owner of a file closes it once.
#include "memsaver/memory/owned_file.hpp"

#include "memsaver/driver/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>

namespace memory_owned_file_test {

using namespace memsaver;
using Machine = FaultyDriver<HostDriver>;
using File = OwnedFile<Machine>;

static_assert(!std::is_copy_constructible_v<File>);
static_assert(std::is_nothrow_move_constructible_v<File> && std::is_nothrow_move_assignable_v<File>);

TEST_CASE("OwnedFile: opens, moves, closes") {
    const Machine driver{HostDriver{64_MiB}};
    const std::string directory = std::filesystem::temp_directory_path().string();
    {
        File none;
        CHECK(!none.owns());
        File file{driver, directory};
        CHECK(file.owns());
        CHECK(file.get().descriptor >= 0);
        CHECK(driver.outstanding().files == 1);
        const FileRef same = file.get();
        none = std::move(file);
        CHECK(!file.owns()); // NOLINT(bugprone-use-after-move): it owns nothing now
        CHECK(none.get() == same);
        none = File{driver, directory};
        CHECK(driver.outstanding().files == 1);
        CHECK(driver.calls(Call::close_file) == 1);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.calls(Call::close_file) == 2);
    CHECK(driver.violations().empty());
}

TEST_CASE("OwnedFile: closing says how it went, and is not tried again") {
    const Machine driver{HostDriver{64_MiB}};
    File file{driver, std::filesystem::temp_directory_path().string()};
    driver.fail({.call = Call::close_file});
    CHECK(file.close().code == Failure::injected_code);
    CHECK(!file.owns());
    CHECK(file.close().ok());
    CHECK(driver.calls(Call::close_file) == 1);
}

TEST_CASE("OwnedFile: says where it could not be opened") {
    const Machine driver{HostDriver{64_MiB}};
    try {
        const File file{driver, "/nowhere/at/all"};
        FAIL_CHECK("opened");
    } catch (const DriverError& error) {
        CHECK(std::string{error.what()}.find("in /nowhere/at/all") != std::string::npos);
        CHECK(!error.status().ok());
    }
    CHECK(driver.everything_given_back());
}

} // namespace memory_owned_file_test
