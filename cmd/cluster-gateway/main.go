// Command cluster-gateway caches member objects and routes requests to
// members, in a process of its own.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/isthmus-dev/isthmus/cmd/cluster-gateway/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
