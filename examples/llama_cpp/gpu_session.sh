#!/usr/bin/env bash
# Builds llama-server with memsaver on a machine that has a GPU, a CUDA toolkit, CMake, Ninja and NumPy, but no network,
# and runs serve.py there.
#
#   gpu_session.sh pack CHECKOUT             here: packs what the build needs into build/llama_gpu, to be carried there
#   gpu_session.sh run OUT [option...]       there: builds, once, and runs serve.py with these options
#
# The build is for sm_90, without flash attention, OpenMP and the kernels of quantized matrices: about three minutes on 16
# cores. SECONDS_IN_ALL (540): no step begins later.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=build/llama_gpu

pack() {
    rm -rf "$folder" && mkdir -p "$folder"
    local left_out=() each
    for each in tests benches examples models docs media ggml/src/ggml-{cann,et,hexagon,metal,opencl,openvino,sycl,virtgpu,vulkan,webgpu,zdnn,zendnn}; do
        left_out+=(--exclude="./$each")
    done
    tar -C "$1" -cJf "$folder/llama.cpp.tar.xz" "${left_out[@]}" .
    du -h "$folder/llama.cpp.tar.xz"
}

run() {
    local out=$1 source=$folder/source
    shift
    if [[ ! -x $folder/build/bin/llama-server ]]; then
        rm -rf "$source" && mkdir -p "$source"
        tar -C "$source" -xf "$folder/llama.cpp.tar.xz"
        for each in "$source"/ggml/src/ggml-cuda/template-instances/{mmq,fattn}*.cu; do : >"$each"; done
        python3 examples/llama_cpp/edit.py "$source"
        # What is left out is never called: symbols are bound when they are.
        cmake -G Ninja -S "$source" -B "$folder/build" -DMEMSAVER_LLAMA_CPP="$PWD/examples/llama_cpp" \
            -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90-real -DGGML_CUDA_FA=OFF -DGGML_CUDA_NCCL=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF \
            -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -DNDEBUG" -DCMAKE_C_FLAGS="-O1 -DNDEBUG" -DCMAKE_CUDA_FLAGS="-O2 -DNDEBUG" \
            -DCMAKE_SHARED_LINKER_FLAGS=-Wl,-z,lazy -DCMAKE_EXE_LINKER_FLAGS=-Wl,-z,lazy,--allow-shlib-undefined \
            -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
            -DLLAMA_USE_PREBUILT_UI=OFF >"$out/configure.log"
        nice ninja -C "$folder/build" -j16 llama-server memsaver_keeper >"$out/build.log" || { grep -m 20 -E "error|undefined" "$out/build.log"; exit 1; }
        "$folder/build/bin/llama-server" --version 2>&1 | tail -n 2
        echo "built in $SECONDS s"
    fi
    local status=0
    python3 examples/llama_cpp/serve.py --checkout "$source" --server "$folder/build/bin/llama-server" --work "$folder" --out "$out" \
        --deadline $((${SECONDS_IN_ALL:-540} - SECONDS)) "$@" || status=$?
    for each in "$folder"/*.log; do tail -c 100000 "$each" >"$out/$(basename "$each")"; done
    return "$status"
}

"$@"
