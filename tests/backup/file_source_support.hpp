// A directory with files of known bytes to load.
#pragma once

#include "support/machines.hpp"

namespace test {

/// Files in their own directory, which is removed in the destructor.
struct ModelFiles {
    using Bytes = std::vector<unsigned char>;

    [[nodiscard]] std::string path(const std::string& file) const { return name + '/' + file; }
    /// Creates or replaces a file and returns its path.
    std::string put(const std::string& file, const Bytes& bytes) const { // NOLINT(modernize-use-nodiscard)
        const std::string fresh = path(file + ".fresh");
        {
            std::ofstream out{fresh, std::ios::binary};
            out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
            REQUIRE(out.good());
        }
        std::filesystem::rename(fresh, path(file));
        return path(file);
    }

    const Folder folder{};
    const std::string name = folder.path.string();
};
} // namespace test
