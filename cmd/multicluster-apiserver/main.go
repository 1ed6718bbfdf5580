// Command multicluster-apiserver is one Kubernetes API endpoint over many
// clusters.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/isthmus-dev/isthmus/cmd/multicluster-apiserver/app"
)

func main() {
	command := app.NewCommand()
	if sub, _, err := command.Find(os.Args[1:]); err != nil || !sub.HasParent() {
		os.Exit(cli.Run(command))
	}
	// The server writes a log; a subcommand speaks to a person.
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}
