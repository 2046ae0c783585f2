module frisbee.h/tests/interop/frpc

go 1.23

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/loopholelabs/frisbee-go v0.10.2
	github.com/loopholelabs/polyglot/v2 v2.0.3
	google.golang.org/protobuf v1.35.1
)

require (
	github.com/loopholelabs/common v0.4.10 // indirect
	github.com/loopholelabs/logging v0.3.1 // indirect
	golang.org/x/sync v0.8.0 // indirect
)
