import './components/app';
