// Runs a test case of this program in a new process, to isolate what happens to the device and how the process ends.
// Such a test case begins with `if (!alone()) return;` and is skipped otherwise.
#pragma once

#include "process/process_support.hpp"

#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <string>
#include <unistd.h>

namespace gpu_test {

inline constexpr const char* alone_variable = "MEMSAVER_TEST_ALONE";

/// Returns the argument of a process that was run alone, or null in any other process. Ends the process if it hangs.
inline const char* alone() {
    const char* const told = std::getenv(alone_variable);
    if (told != nullptr) (void)::alarm(240);
    return told;
}

struct Ended {
    int code = -1; ///< its exit code, or minus the signal that ended it
    std::string out;
    std::string err;
};

/// Runs the test case of this name (without wildcards and commas); `alone()` returns `told` in it.
inline Ended run_alone(const std::string& test_case, const std::string& told = "yes") {
    std::FILE* const out = std::tmpfile();
    REQUIRE(out != nullptr);
    const std::string filter = "--test-case=" + test_case;
    process_test::Child child{[&] {
        (void)::setenv(alone_variable, told.c_str(), 1);
        (void)::dup2(::fileno(out), STDOUT_FILENO);
        (void)::execl("/proc/self/exe", "alone", filter.c_str(), "--no-skip", nullptr);
        return 127;
    }};
    Ended ended;
    ended.err = child.rest();
    ended.code = child.wait();
    std::rewind(out);
    for (int byte = std::fgetc(out); byte != EOF; byte = std::fgetc(out)) ended.out.push_back(static_cast<char>(byte));
    (void)std::fclose(out);
    return ended;
}
} // namespace gpu_test
