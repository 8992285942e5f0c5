// The parts of a driver that are the system's: host pages and files, as methods to inherit.
// Pinning is left to the driver.
#pragma once

#include "memsaver/driver/system_available.hpp"
#include "memsaver/driver/system_files.hpp"
#include "memsaver/driver/system_pages.hpp"

#include <cstddef>

namespace memsaver::inline v0_1 {

/// See the concepts HostPages and Files.
class SystemMemory {
public:
    Status map_host(std::size_t bytes, void*& out) const noexcept { return SystemPages::map(bytes, out); }
    Status unmap_host(void* pages, std::size_t bytes) const noexcept { return SystemPages::unmap(pages, bytes); }
    Status populate_host(void* pages, std::size_t bytes) const noexcept { return SystemPages::populate(pages, bytes); }
    Status host_available(std::size_t& bytes) const noexcept {
        bytes = SystemAvailable::bytes();
        return {};
    }

    Status open_file(const char* directory, FileRef& file) const noexcept { return SystemFiles::open(directory, file); }
    Status close_file(FileRef file) const noexcept { return SystemFiles::close(file); }
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) const noexcept {
        return SystemFiles::write(file, from, bytes, offset);
    }
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) const noexcept {
        return SystemFiles::read(file, to, bytes, offset);
    }
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
        return SystemFiles::allocate(file, offset, bytes);
    }
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
        return SystemFiles::punch(file, offset, bytes);
    }
};

} // namespace memsaver::inline v0_1
