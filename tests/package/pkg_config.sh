# pkg_config.sh PKG_CONFIG PREFIX COMPILER SOURCES BUILD VERSION: compiles with memsaver.pc; the prefix may be
# relocated.
# A program that loads the driver, which requires threads and dl.
set -e
pkg_config=$1 prefix=$2 compiler=$3 sources=$4 build=$5 version=$6
rm -rf "$build/moved"
cp -r "$prefix" "$build/moved"
PKG_CONFIG_PATH=$(dirname "$(find "$build/moved" -name memsaver.pc)")
export PKG_CONFIG_PATH
found=$($pkg_config --modversion memsaver)
[ "$found" = "$version" ] || { echo "memsaver.pc is of version $found"; exit 1; }
flags=$($pkg_config --cflags memsaver)
case $flags in *"$build/moved"*) ;; *) echo "memsaver.pc does not see that it was moved: $flags"; exit 1 ;; esac
# shellcheck disable=SC2046 # words
"$compiler" -std=c++20 $flags "$sources/available.cpp" -o "$build/pkg_config_consumer" $($pkg_config --libs memsaver)
"$build/pkg_config_consumer"

# The C interface, if it was built.
if $pkg_config --exists memsaver-c; then
    # shellcheck disable=SC2046 # words
    "$compiler" -x c++ "$sources/consumer.c" -x none -o "$build/pkg_config_consumer_c" \
        $($pkg_config --cflags --libs memsaver-c)
    LD_LIBRARY_PATH=$($pkg_config --variable=libdir memsaver-c) "$build/pkg_config_consumer_c"
fi
