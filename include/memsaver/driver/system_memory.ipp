// Definitions of system_memory.hpp.
#pragma once

#include "memsaver/driver/system.hpp"
#include "memsaver/driver/system_memory.hpp"

#include <cstddef>

namespace memsaver::inline v0_2 {

namespace detail {

MEMSAVER_INLINE Status SystemMemory::map_host(std::size_t bytes, void*& out) const noexcept {
    return SystemPages::map(bytes, out);
}

MEMSAVER_INLINE Status SystemMemory::unmap_host(void* pages, std::size_t bytes) const noexcept {
    return SystemPages::unmap(pages, bytes);
}

MEMSAVER_INLINE Status SystemMemory::populate_host(void* pages, std::size_t bytes) const noexcept {
    return SystemPages::populate(pages, bytes);
}

MEMSAVER_INLINE Status SystemMemory::open_file(const char* directory, FileRef& file) const noexcept {
    return SystemFiles::open(directory, file);
}

MEMSAVER_INLINE Status SystemMemory::close_file(FileRef file) const noexcept { return SystemFiles::close(file); }

MEMSAVER_INLINE Status SystemMemory::host_available(std::size_t& bytes) const noexcept {
    bytes = SystemAvailable::bytes();
    return {};
}

MEMSAVER_INLINE Status SystemMemory::write_file(FileRef file, const void* from, std::size_t bytes,
                                                std::size_t offset) const noexcept {
    return SystemFiles::write(file, from, bytes, offset);
}

MEMSAVER_INLINE Status SystemMemory::read_file(FileRef file, void* to, std::size_t bytes,
                                               std::size_t offset) const noexcept {
    return SystemFiles::read(file, to, bytes, offset);
}

MEMSAVER_INLINE Status SystemMemory::allocate_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
    return SystemFiles::allocate(file, offset, bytes);
}

MEMSAVER_INLINE Status SystemMemory::punch_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
    return SystemFiles::punch(file, offset, bytes);
}

MEMSAVER_INLINE Status SystemMemory::open_source(const char* path, bool direct, FileRef& file) const noexcept {
    return SystemFiles::open_source(path, direct, file);
}

MEMSAVER_INLINE Status SystemMemory::file_facts(FileRef file, FileFacts& facts) const noexcept {
    return SystemFiles::facts(file, facts);
}

MEMSAVER_INLINE Status SystemMemory::file_cached(FileRef file, std::size_t bytes, std::size_t offset,
                                                 bool& yes) const noexcept {
    return SystemFiles::cached(file, bytes, offset, yes);
}

} // namespace detail

} // namespace memsaver::inline v0_2
