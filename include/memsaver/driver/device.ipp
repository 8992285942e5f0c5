// Definitions of device.hpp: what the operating system does.
#pragma once

#include "memsaver/driver/device.hpp"
#include "memsaver/driver/system.hpp"

#include <cstddef>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE Status Device::map_host(std::size_t bytes, void*& pages) noexcept {
    return detail::SystemMemory::map_host(bytes, pages);
}

MEMSAVER_INLINE Status Device::unmap_host(void* pages, std::size_t bytes) noexcept {
    return detail::SystemMemory::unmap_host(pages, bytes);
}

MEMSAVER_INLINE Status Device::populate_host(void* pages, std::size_t bytes) noexcept {
    return detail::SystemMemory::populate_host(pages, bytes);
}

MEMSAVER_INLINE Status Device::host_available(std::size_t& bytes) noexcept {
    return detail::SystemMemory::host_available(bytes);
}

MEMSAVER_INLINE Status Device::open_file(const char* directory, FileRef& file) noexcept {
    return detail::SystemMemory::open_file(directory, file);
}

MEMSAVER_INLINE Status Device::open_source(const char* path, bool direct, FileRef& file) noexcept {
    return detail::SystemMemory::open_source(path, direct, file);
}

MEMSAVER_INLINE Status Device::close_file(FileRef file) noexcept { return detail::SystemMemory::close_file(file); }

MEMSAVER_INLINE Status Device::write_file(FileRef file, const void* from, std::size_t bytes,
                                          std::size_t offset) noexcept {
    return detail::SystemMemory::write_file(file, from, bytes, offset);
}

MEMSAVER_INLINE Status Device::read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept {
    return detail::SystemMemory::read_file(file, to, bytes, offset);
}

MEMSAVER_INLINE Status Device::allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
    return detail::SystemMemory::allocate_file(file, offset, bytes);
}

MEMSAVER_INLINE Status Device::punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
    return detail::SystemMemory::punch_file(file, offset, bytes);
}

MEMSAVER_INLINE Status Device::file_facts(FileRef file, FileFacts& facts) noexcept {
    return detail::SystemMemory::file_facts(file, facts);
}

MEMSAVER_INLINE Status Device::file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept {
    return detail::SystemMemory::file_cached(file, bytes, offset, yes);
}

} // namespace memsaver::inline v0_3
