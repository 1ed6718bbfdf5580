// Command multicluster-apiserver is one Kubernetes API endpoint over many
// clusters.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/isthmus-dev/isthmus/cmd/multicluster-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
