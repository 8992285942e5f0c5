// Runs a test case of this program in a new process, to isolate what happens to the device and how the process ends.
// Such a test case begins with `if (!alone()) return;` and is skipped otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <spawn.h>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
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
    const auto text_of = [](std::FILE* file) {
        std::string text;
        std::rewind(file);
        for (int byte = std::fgetc(file); byte != EOF; byte = std::fgetc(file)) text.push_back(static_cast<char>(byte));
        (void)std::fclose(file);
        return text;
    };
    std::FILE* const out = std::tmpfile();
    std::FILE* const err = std::tmpfile();
    REQUIRE((out != nullptr && err != nullptr));
    posix_spawn_file_actions_t actions;
    REQUIRE(::posix_spawn_file_actions_init(&actions) == 0);
    REQUIRE(::posix_spawn_file_actions_adddup2(&actions, ::fileno(out), STDOUT_FILENO) == 0);
    REQUIRE(::posix_spawn_file_actions_adddup2(&actions, ::fileno(err), STDERR_FILENO) == 0);

    std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    std::string filter = "--test-case=" + test_case;
    std::string no_skip = "--no-skip";
    std::array<char*, 4> arguments{program.data(), filter.data(), no_skip.data(), nullptr};
    REQUIRE(::setenv(alone_variable, told.c_str(), 1) == 0);
    pid_t process = 0;
    const int started = ::posix_spawn(&process, program.c_str(), &actions, nullptr, arguments.data(), environ);
    (void)::unsetenv(alone_variable);
    (void)::posix_spawn_file_actions_destroy(&actions);
    REQUIRE(started == 0);
    int status = 0;
    REQUIRE(::waitpid(process, &status, 0) == process);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text_of(out), text_of(err)};
}
} // namespace gpu_test
