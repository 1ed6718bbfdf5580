package buildversion

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestProduct(t *testing.T) {
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "2b5dabe0123456789abcdef"}
	for name, c := range map[string]struct {
		stamp string
		info  *debug.BuildInfo
		want  string
	}{
		"stamped":                {"v0.3.0-4-gabc", info("v1.0.0", revision), "v0.3.0-4-gabc"},
		"go install of a module": {"", info("v0.3.0"), "v0.3.0"},
		"of the sources":         {"", info("(devel)", revision), "v0.0.0-2b5dabe01234"},
		"of changed sources":     {"", info("(devel)", revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), "v0.0.0-2b5dabe01234-dirty"},
		"nothing known":          {"", info(""), "(devel)"},
		"no build information":   {"", nil, "(devel)"},
	} {
		if got := product(c.stamp, c.info); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestString(t *testing.T) {
	if got := String("cluster-gateway"); !strings.HasPrefix(got, "cluster-gateway ") || !strings.Contains(got, "(Kubernetes v") {
		t.Errorf("%q", got)
	}
}
