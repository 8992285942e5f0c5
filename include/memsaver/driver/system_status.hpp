// What a system call's errno is as a Status.
#pragma once

#include "memsaver/base/base.hpp"

#include <cerrno>

namespace memsaver::inline v0_1 {

inline Status system_status(int error) noexcept {
    switch (error) {
    case 0: return {};
    case ENOMEM: return {StatusKind::out_of_host_memory, error, "ENOMEM"};
    case EAGAIN: return {StatusKind::out_of_host_memory, error, "EAGAIN"};
    case ENOSPC: return {StatusKind::other, error, "ENOSPC"};
    case EDQUOT: return {StatusKind::other, error, "EDQUOT"};
    case EFBIG: return {StatusKind::other, error, "EFBIG"};
    case EIO: return {StatusKind::other, error, "EIO"};
    case EINVAL: return {StatusKind::other, error, "EINVAL"};
    case EACCES: return {StatusKind::other, error, "EACCES"};
    case ENOENT: return {StatusKind::other, error, "ENOENT"};
    case ENOTDIR: return {StatusKind::other, error, "ENOTDIR"};
    case EPERM: return {StatusKind::other, error, "EPERM"};
    case EROFS: return {StatusKind::other, error, "EROFS"};
    case EMFILE: return {StatusKind::other, error, "EMFILE"};
    case ENFILE: return {StatusKind::other, error, "ENFILE"};
    case EBADF: return {StatusKind::other, error, "EBADF"};
    case ENAMETOOLONG: return {StatusKind::other, error, "ENAMETOOLONG"};
    case EOPNOTSUPP: return {StatusKind::other, error, "EOPNOTSUPP"};
    default: return {StatusKind::other, error, "system error"};
    }
}

} // namespace memsaver::inline v0_1
