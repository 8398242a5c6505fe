package server

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

type fakeNetworks struct{}

func (fakeNetworks) Network(ref string) (api.Network, error) { return api.Network{Sandbox: ref}, nil }
func (fakeNetworks) UpdateNetwork(_ context.Context, p api.NetUpdateParams) (api.Network, error) {
	return api.Network{Sandbox: p.Sandbox}, nil
}
func (fakeNetworks) CheckNetwork(api.NetCheckParams) (api.NetVerdict, error) {
	return api.NetVerdict{Allow: true}, nil
}

func (fakeNetworks) Asks() (api.Asks, error)                        { return api.Asks{}, nil }
func (fakeNetworks) Answer(context.Context, api.AnswerParams) error { return nil }
func (fakeNetworks) Forget(api.ForgetParams) (api.Asks, error)      { return api.Asks{}, nil }
