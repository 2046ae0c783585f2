// Writes Go messages from a .proto file with the generator that polyglot brings, and with what frpc-go adds to each message: an error
// that may stand for it, and flags before its fields. No protoc is needed: go run ./gen FILE.proto OUTPUT.go
package main

import (
	"context"
	"log"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/loopholelabs/polyglot/v2/generator/golang"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func generate(path string) ([]byte, error) {
	directory, name := filepath.Split(path)
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{directory}}}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	generator := golang.New()
	generator.CustomFields = func() string { return "error error\n\tflags uint8\n" }
	generator.CustomEncode = func() string {
		return "if x.error != nil {\n\tpolyglot.Encoder(b).Error(x.error)\n\treturn\n}\npolyglot.Encoder(b).Uint8(x.flags)\n"
	}
	generator.CustomDecode = func() string {
		return "x.error, err = d.Error()\nif err == nil {\n\treturn nil\n}\nx.flags, err = d.Uint8()\nif err != nil {\n\treturn err\n}\n"
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(files[0])},
	})
	if err != nil {
		return nil, err
	}
	output := plugin.NewGeneratedFile("messages.go", "main")
	output.P("package main\n\nimport (\n\t\"errors\"\n\n\t\"github.com/loopholelabs/polyglot/v2\"\n)\n") // its own head is not Go in v2.0.3
	if err := generator.ExecuteTemplate(output, plugin.Files[0], "main", false); err != nil {
		return nil, err
	}
	return output.Content()
}

func main() {
	content, err := generate(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], content, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}
