// A temporary directory of its own, which ends with it.
#pragma once

#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <string>
#include <unistd.h>

namespace test {

struct Folder {
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "memsaver-test-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~Folder() { // not in a forked child
        if (::getpid() == maker) std::filesystem::remove_all(path);
    }

    std::filesystem::path path;

private:
    pid_t maker = ::getpid();
};
} // namespace test
