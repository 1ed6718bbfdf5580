// Package buildversion names the product's own version beside the Kubernetes
// version that it speaks:
//
//	make (-X stamp) | build information of Go -> String
package buildversion

import (
	"fmt"
	"runtime/debug"

	"k8s.io/component-base/version"
)

// stamp is set by the linker; see the Makefile.
var stamp string

const devel = "(devel)"

// String is "PROGRAM VERSION (Kubernetes VERSION)".
func String(program string) string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("%s %s (Kubernetes %s)", program, product(stamp, info), version.Get().GitVersion)
}

// product picks the version: the stamp, or what Go knows of the sources.
func product(stamp string, info *debug.BuildInfo) string {
	switch {
	case stamp != "":
		return stamp
	case info == nil:
		return devel
	case info.Main.Version != "" && info.Main.Version != devel:
		return info.Main.Version
	}
	const short = 12
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), short)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return devel
	}
	return "v0.0.0-" + revision + dirty
}
