# documents.sh manual|readme OUT COMPILER - extracts the code that users will copy, compiles it, and runs the manual's.
document=$1 out=$2 compiler=$3
cc="$compiler -std=c99 -O1 -Wall -Wextra -I."
server=
trap 'test -z "$server" || kill "$server" 2>/dev/null' EXIT

frisbee=$out.frisbee.o
$cc -c tests/compile/frisbee.c -o "$frisbee" || exit 1

case $document in
manual)
    # Section 1: the server is the indented code behind "A server", the client is the code behind "A client". Only the address is
    # changed, to one that nobody else uses.
    for role in server client; do
        {
            printf '#include "frisbee.h"\n#include <stdio.h>\n'
            test "$role" = server || printf 'int main(void) {\n'
            awk -v start="^    A $role " '
                $0 ~ start { on = 1; next }
                on && /^        / { print substr($0, 5); next }
                on && /^    [^ ]/ { exit }' frisbee.h | sed "s|127\.0\.0\.1:7777|unix:$out.socket|"
            test "$role" = server || printf '    frisbee_pool_destroy(pool);\n    return 0;\n}\n'
        } >"$out.$role.c"
        grep -q "unix:$out.socket" "$out.$role.c" || { echo "the $role's code was not found"; exit 1; }
        $cc -Werror "$out.$role.c" "$frisbee" -pthread -o "$out.$role" || { cat "$out.$role.c"; exit 1; }
    done
    "$out.server" &
    server=$!
    tries=0
    while test ! -S "$out.socket" && test "$tries" -lt 10; do
        sleep 1
        tries=$((tries + 1))
    done
    said=$("$out.client")
    test "$said" = hello || { echo "the client said \"$said\", not \"hello\""; exit 1; }
    ;;
readme)
    # Each ```c block. With main: a program. With declarations or directives only: a unit. Anything else: statements inside a function that has
    # a pool and a connection.
    awk -v out="$out" '/^```c$/ { n++; on = 1; next } /^```/ { on = 0 } on { print > (out "." n ".block") }' README.md
    test -e "$out.1.block" || { echo 'README.md has no ```c block'; exit 1; }
    for block in "$out".*.block; do
        name=${block%.block}
        own=
        grep -q 'define FRISBEE_IMPLEMENTATION' "$block" && own=1
        {
            test -n "$own" || printf '#include "frisbee.h"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'
            cat "$block"
        } >"$name.c"
        if grep -q 'main(' "$block"; then
            if test -n "$own"; then $cc "$name.c" -pthread -o "$name"; else $cc "$name.c" "$frisbee" -pthread -o "$name"; fi
        elif ! $cc -Werror=implicit-function-declaration -c "$name.c" -o "$name.o" 2>/dev/null; then
            {
                printf '#include "frisbee.h"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'
                printf 'void fragment(frisbee_pool *pool, frisbee_conn conn) {\n(void)pool; (void)conn;\n{\n'
                cat "$block"
                printf '}\n}\n'
            } >"$name.c"
            $cc -Werror=implicit-function-declaration -c "$name.c" -o "$name.o"
        fi || { cat "$name.c"; exit 1; }
    done
    ;;
*) echo "no document $document"; exit 2 ;;
esac
