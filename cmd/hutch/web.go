package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/become"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/webapi"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newWeb() *cobra.Command {
	cfg := webapi.Config{}
	cmd := &cobra.Command{
		Use: "web [flags]",
		Long: `Serve sandboxes over HTTP: REST with JSON, and streams of server-sent events. /openapi.json describes all
paths. Every request needs the token: of a file that you name, or one that is made and whose file is printed. A Unix
socket needs none: it is for your own processes.

Clients have less than you: they see the sandboxes that were made here and no others, name no folder of this machine,
and reach none of its ports from a sandbox.`,
		Example: `  hutch web --listen 127.0.0.1:7070 --token-file ~/.hutch-token
  curl -H "Authorization: Bearer $TOKEN" -d '{"image": "python:3.12"}' http://127.0.0.1:7070/sandboxes
  hutch web --e2b --token-file ~/.hutch-token
  E2B_API_URL=http://127.0.0.1:7071 E2B_SANDBOX_URL=http://127.0.0.1:7071 E2B_API_KEY=e2b_$TOKEN python3 agent.py`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := api.ParsePortAddress(cfg.Listen); err != nil {
				return cli.Usage(cmd.CommandPath(), fmt.Errorf("--listen: %w", err))
			}
			if err := checkE2B(&cfg); err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			if err := checkDoor(&cfg); err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			for _, g := range cfg.Grant {
				if !slices.Contains(webapi.Grants, g) {
					return cli.Usage(cmd.CommandPath(), fmt.Errorf("--grant %q: there are %s", g,
						strings.Join(webapi.Grants, ", ")))
				}
			}
			return becomeWeb(cmd, cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.Listen, "listen", "127.0.0.1:7070",
		"listen on `ADDRESS`: IP:PORT, PORT alone for this machine's programs, or the absolute path of a Unix socket")
	cmd.Flags().StringVar(&cfg.E2B, "e2b", "",
		"serve E2B's shape for its published SDKs, too, on `ADDRESS`: PORT or IP:PORT")
	cmd.Flags().Lookup("e2b").NoOptDefVal = e2bPort
	cmd.Flags().StringVar(&cfg.TokenFile, "token-file", "",
		"`FILE` with the bearer token (default: one is made)")
	cmd.Flags().StringVar(&cfg.Tokens, "tokens", "",
		"`FILE` with several clients, their tokens' digests and what each may have, instead of one token")
	cmd.Flags().StringVar(&cfg.E2BDomain, "e2b-domain", "",
		"names of servers in sandboxes are below `NAME`, which leads here (default localhost)")
	cmd.Flags().StringVar(&cfg.TLSCert, "tls-cert", "", "serve HTTPS with the certificate in `FILE`; one that is replaced is used at once")
	cmd.Flags().StringVar(&cfg.TLSKey, "tls-key", "", "`FILE` with its key, which only you can read")
	cmd.Flags().BoolVar(&cfg.TLS, "tls", false, "serve HTTPS, without --tls-cert with certificates that it makes; where the one that signs them is, is printed")
	cmd.Flags().StringArrayVar(&cfg.Hosts, "host", nil,
		"answer requests for this `NAME`, too; may be repeated")
	cmd.Flags().StringArrayVar(&cfg.Grant, "grant", nil,
		"let clients have `POWER`: host-ports (network policies may name ports and addresses of this machine), sandboxes (see all of yours, with your folders in them); may be repeated")
	cmd.Flags().StringArrayVar(&cfg.Registries, "registry", nil,
		"let clients have images of `HOST[:PORT]` fetched, beside Docker Hub's; may be repeated")
	cmd.Flags().Func("max-upload", "largest `SIZE` of an upload, such as 1g (default 100m)",
		func(v string) (err error) {
			cfg.MaxUpload, err = cli.ParseSize(v)
			return err
		})
	return cmd
}

// e2bPort is where E2B's shape is served where nobody says, for this machine's programs.
const e2bPort = "7071"

// checkE2B refuses addresses that E2B's shape cannot be served on: it is reached by a URL, and by its token.
func checkE2B(cfg *webapi.Config) error {
	if cfg.E2B == "" {
		return nil
	}
	at, err := api.ParsePortAddress(cfg.E2B)
	if err != nil {
		return fmt.Errorf("--e2b: %w", err)
	}
	web, err := api.ParsePortAddress(cfg.Listen)
	if err != nil || web.Path == "" && at.Path == "" {
		return err
	}
	return fmt.Errorf("--e2b %s with --listen %s: SDKs connect to an address and have a token, and a Unix socket has neither; "+
		"give IP:PORT for both", cfg.E2B, cfg.Listen)
}

// checkDoor refuses flags that contradict each other.
func checkDoor(cfg *webapi.Config) error {
	unix := false
	if at, err := api.ParsePortAddress(cfg.Listen); err == nil {
		unix = at.Path != ""
	}
	switch {
	case cfg.Tokens != "" && (cfg.TokenFile != "" || len(cfg.Grant) > 0):
		return errors.New("--tokens with --token-file or --grant: each client in the file has a token and grants of its own")
	case (cfg.TLSCert == "") != (cfg.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key go together: give the certificate and its key, or --tls alone")
	case unix && (cfg.Tokens != "" || cfg.TLS || cfg.TLSCert != ""):
		return fmt.Errorf("--listen %s: a Unix socket is for your own processes, without tokens and TLS", cfg.Listen)
	case cfg.E2BDomain != "" && strings.Trim(cfg.E2BDomain, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "":
		return fmt.Errorf("--e2b-domain %q: give a name in lower case, without a port", cfg.E2BDomain)
	}
	return nil
}

// becomeWeb executes hutch-web, once the daemon answers: what is wrong with it is told better here.
func becomeWeb(cmd *cobra.Command, cfg webapi.Config) error {
	if err := withDaemon(cmd.Context(), func(*client.Client) error { return nil }); err != nil {
		return err
	}
	return become.Program("hutch-web", webapi.Variable, cfg)
}
