# symbols.sh CHECK OUT COMPILER [OPTION]... - what the implementation, compiled, brings into a program and takes from the system. Silent if all is
# well; `size` leaves what it measured in OUT.note.
check=$1 out=$2 compiler=$3
shift 3
here=tests/compile
cc="$compiler -std=c99 -O1 -I. $*"
LC_ALL=C
export LC_ALL

defined() { nm -g --defined-only "$1" | awk '{ print $NF }' | sort; }
wanted() { nm -u "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort -u; }
none() { # MESSAGE: standard input must be empty
    sed "s/^/$1: /" >"$out.found"
    cat "$out.found"
    test ! -s "$out.found"
}

case $check in
exports) # exactly the functions that are declared, no more and no less
    $cc -c $here/frisbee.c -o "$out.o" || exit 1
    defined "$out.o" >"$out.defined"
    sed -n -e 's/^FRISBEE_API .*[ *]\(frisbee_[a-z0-9_]*\)(.*/\1/p' -e '/^#endif .. FRISBEE_H$/q' frisbee.h | sort >"$out.declared"
    test "$(wc -l <"$out.declared")" -gt 40 || { echo 'the declarations were not found'; exit 1; }
    comm -13 "$out.declared" "$out.defined" | none 'not declared, but a symbol' || exit 1
    comm -23 "$out.declared" "$out.defined" | none 'declared, but no symbol' || exit 1
    grep -v '^frisbee_' "$out.defined" | none 'without the prefix'
    ;;
shared) # as a shared library, which must find everything in libc
    $cc -fPIC -shared -Wl,-z,defs $here/frisbee.c -o "$out.so" -pthread || exit 1
    nm -D --defined-only "$out.so" | awk '{ print $NF }' | grep -Evx '_init|_fini|_edata|_end|__bss_start' >"$out.defined" # the linker's own
    test -s "$out.defined" || { echo 'no symbols'; exit 1; }
    grep -v '^frisbee_' "$out.defined" | none 'without the prefix'
    ;;
state) # promise 4: no global state, so nothing that could be written to
    $cc -fno-pic -fno-pie -DFRISBEE_LOG_LEVEL=3 -c $here/frisbee.c -o "$out.o" || exit 1 # (in PIC constant pointers are relocated)
    nm "$out.o" | awk '$2 ~ /^[bBdDcCsSgG]$/ { print $NF }' | none 'global state'
    ;;
imports) # promise 4: no abort, exit, print, signal handler, change of the process (a thread's mask around pthread_create is none)
    $cc -DFRISBEE_LOG_LEVEL=3 -c $here/frisbee.c -o "$out.o" || exit 1
    wanted "$out.o" >"$out.wanted"
    grep -qx 'socket' "$out.wanted" || { echo 'socket is not among the imports: the list is wrong'; exit 1; }
    grep -Ex -e 'abort|exit|_exit|_Exit|quick_exit|atexit|__assert_fail|longjmp|_longjmp|siglongjmp|_setjmp' \
        -e '(f|d|v|vf|vd)?printf|__(v|f|vf)?printf_chk|puts|fputs|putchar|putc|fputc|fwrite|perror|psignal|syslog|stdout|stderr' \
        -e 'signal|sigaction|sigprocmask|raise|kill|alarm|setitimer' \
        -e 'setlocale|chdir|umask|setenv|putenv|setrlimit|system|popen|fork|rand|srand|random|srandom|strtok|localtime|gmtime|gethostbyname' \
        "$out.wanted" | none 'used'
    ;;
firmware) # without an operating system: memory and strings (and snprintf, for frisbee_message_print alone); with an own allocator not even malloc
    $cc -DFRISBEE_POLLER=FRISBEE_POLLER_NONE -DFRISBEE_NO_THREADS -DFRISBEE_LOG_LEVEL=0 '-DFRISBEE_MALLOC(n)=my_malloc(n)' \
        '-DFRISBEE_REALLOC(p,n)=my_realloc(p,n)' '-DFRISBEE_FREE(p)=my_free(p)' -include $here/my_memory.h \
        -c $here/frisbee.c -o "$out.o" || exit 1
    wanted "$out.o" >"$out.wanted"
    grep -qx my_malloc "$out.wanted" || { echo 'FRISBEE_MALLOC is not used'; exit 1; }
    grep -Evx -e 'mem(cpy|move|set|cmp|chr)|bcmp|str(len|cmp|ncmp|chr)|my_(malloc|realloc|free)|snprintf' -e '_GLOBAL_OFFSET_TABLE_' "$out.wanted" | none 'needed'
    ;;
size) # bytes of code and constants, everything in and with each pattern left out; what an option leaves out must show
    bytes() { # NAME OPTION...
        name=$1
        shift
        $compiler -std=c99 -Os -I. -DFRISBEE_LOG_LEVEL=0 "$@" -c $here/frisbee.c -o "$out.o" || exit 1
        size "$out.o" | awk -v name="$name" 'NR == 2 { print name, $1 }'
    }
    {
        bytes all
        bytes no_pubsub -DFRISBEE_NO_PUBSUB
        bytes no_streams -DFRISBEE_NO_STREAMS
        bytes no_rpc -DFRISBEE_NO_RPC
        bytes neither -DFRISBEE_NO_PUBSUB -DFRISBEE_NO_STREAMS
        bytes firmware -DFRISBEE_NO_PUBSUB -DFRISBEE_NO_STREAMS -DFRISBEE_NO_RPC -DFRISBEE_NO_THREADS -DFRISBEE_POLLER=FRISBEE_POLLER_NONE
    } >"$out.sizes"
    awk -v compiler="$compiler" '{ size[$1] = $2; all = all ", " $1 " " $2 } END { print compiler " -Os, bytes of code: " substr(all, 3) }' \
        "$out.sizes" >"$out.note"
    awk '{ size[$1] = $2 }
        END {
            if (size["no_pubsub"] > size["all"] - 4000) print "FRISBEE_NO_PUBSUB leaves little out"
            if (size["no_streams"] > size["all"] - 2000) print "FRISBEE_NO_STREAMS leaves little out"
            if (size["no_rpc"] > size["all"] - 4000) print "FRISBEE_NO_RPC leaves little out"
            if (size["neither"] >= size["no_pubsub"] || size["neither"] >= size["no_streams"]) print "the options do not add up"
            if (size["firmware"] >= size["neither"]) print "no sockets: no smaller"
        }' "$out.sizes" | none 'size'
    ;;
static) # nothing but the program itself
    $cc -DFRISBEE_STATIC -c $here/use.c -o "$out.o" || exit 1
    defined "$out.o" | grep -vx main | none 'a symbol'
    ;;
*) echo "no check $check"; exit 2 ;;
esac
